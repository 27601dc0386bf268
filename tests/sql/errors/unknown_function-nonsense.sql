-- error: UNKNOWN_FUNCTION
-- at: 1:8
SELECT frobnicate(k) FROM s
