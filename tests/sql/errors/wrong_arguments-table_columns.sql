-- error: WRONG_ARGUMENTS
-- at: 1:15
SELECT a FROM s AS t(a, b)
