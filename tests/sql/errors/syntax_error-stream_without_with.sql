-- error: SYNTAX_ERROR
-- at: 1:24
CREATE STREAM x (a INT)
