-- error: SYNTAX_ERROR
-- at: 1:18
SELECT date_diff('DAY', day, ts) FROM s
