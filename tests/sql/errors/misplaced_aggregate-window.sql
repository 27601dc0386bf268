-- error: MISPLACED_AGGREGATE
-- at: 1:12
SELECT id, window(ts, '1 minute') FROM s GROUP BY id
