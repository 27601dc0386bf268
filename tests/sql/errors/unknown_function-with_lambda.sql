-- error: UNKNOWN_FUNCTION
-- at: 1:8
SELECT any_match(tags, x -> x = 'a') FROM s
