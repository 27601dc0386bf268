-- error: SYNTAX_ERROR
-- at: 1:17
SELECT id FROM s
SELECT id FROM s
