-- error: SYNTAX_ERROR
-- at: 1:8
SELECT 'abc FROM s
