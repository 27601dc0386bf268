-- error: SYNTAX_ERROR
-- at: 1:11
SELECT id /* FROM s
