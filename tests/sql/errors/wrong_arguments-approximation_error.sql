-- error: WRONG_ARGUMENTS
-- at: 1:36
SELECT approx_count_distinct(temp, 0.9) FROM s
