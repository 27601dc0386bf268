-- error: SYNTAX_ERROR
-- at: 2:1
SELECT id FROM s
SELECT id FROM s
