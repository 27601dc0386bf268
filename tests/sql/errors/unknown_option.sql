-- error: UNKNOWN_OPTION
-- at: 1:38
CREATE SINK x WITH (type = 'memory', sise = 3)
