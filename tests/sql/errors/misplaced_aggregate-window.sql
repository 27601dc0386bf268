-- error: MISPLACED_AGGREGATE
-- at: 1:8
SELECT window(ts, '1 minute') FROM s
