-- error: SYNTAX_ERROR
-- at: 1:28
CREATE SINK x WITH (type = )
