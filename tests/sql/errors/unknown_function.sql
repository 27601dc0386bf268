-- error: UNKNOWN_FUNCTION
-- at: 1:8
SELECT uper(k) FROM s
