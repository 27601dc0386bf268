-- error: MISSING_OPTION
-- at: 1:1
CREATE SINK x WITH (path = '/tmp/x')
