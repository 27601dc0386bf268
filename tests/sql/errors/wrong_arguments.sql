-- error: WRONG_ARGUMENTS
-- at: 1:8
SELECT upper(k, k) FROM s
