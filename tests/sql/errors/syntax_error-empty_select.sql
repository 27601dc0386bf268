-- error: SYNTAX_ERROR
-- at: 1:8
SELECT FROM s
