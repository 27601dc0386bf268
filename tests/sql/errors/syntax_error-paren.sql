-- error: SYNTAX_ERROR
-- at: 1:16
SELECT (id + 1 FROM s
