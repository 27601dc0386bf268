-- error: UNKNOWN_FUNCTION
-- at: 1:8
SELECT strpos(k, 'a') FROM s
