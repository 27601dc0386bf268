-- error: UNKNOWN_SINK_KIND
-- at: 1:21
CREATE SINK x WITH (type = 'parket', path = '/tmp/x')
