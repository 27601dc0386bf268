-- error: WRONG_ARGUMENTS
-- at: 1:8
SELECT now(NULL) FROM s
