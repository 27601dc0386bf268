-- error: MISPLACED_AGGREGATE
-- at: 1:8
SELECT window(ts, '2 minutes') AS w, count(*) FROM s GROUP BY window(ts, '1 minute')
