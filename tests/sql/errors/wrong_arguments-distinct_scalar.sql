-- error: WRONG_ARGUMENTS
-- at: 1:8
SELECT upper(DISTINCT k) FROM s
