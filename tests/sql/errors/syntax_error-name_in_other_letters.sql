-- error: SYNTAX_ERROR
-- at: 1:14
SELECT id AS größe FROM s
