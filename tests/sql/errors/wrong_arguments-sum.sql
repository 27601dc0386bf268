-- error: WRONG_ARGUMENTS
-- at: 1:8
SELECT sum(id, n) FROM s
