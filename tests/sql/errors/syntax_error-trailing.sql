-- error: SYNTAX_ERROR
-- at: 1:24
SELECT id FROM s extra stuff
