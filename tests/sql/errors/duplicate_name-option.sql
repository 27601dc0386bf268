-- error: DUPLICATE_NAME
-- at: 1:38
CREATE SINK x WITH (type = 'memory', type = 'console')
