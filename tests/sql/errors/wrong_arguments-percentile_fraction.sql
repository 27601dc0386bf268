-- error: WRONG_ARGUMENTS
-- at: 1:25
SELECT percentile(temp, 1.5) FROM s
