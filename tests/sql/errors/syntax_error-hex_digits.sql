-- error: SYNTAX_ERROR
-- at: 1:8
SELECT X'1G' FROM s
