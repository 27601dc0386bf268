-- error: UNKNOWN_FUNCTION
-- at: 1:8
SELECT element(tags, 0) FROM s
