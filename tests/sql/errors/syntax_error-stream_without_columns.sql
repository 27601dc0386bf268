-- error: SYNTAX_ERROR
-- at: 1:18
CREATE STREAM x () WITH (source = 'generator', format = 'json')
