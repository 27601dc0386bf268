-- error: UNKNOWN_FUNCTION
-- at: 1:8
SELECT nosuch(k) FROM s
