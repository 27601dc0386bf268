-- error: MISPLACED_AGGREGATE
-- at: 1:42
SELECT count(*) AS total FROM s GROUP BY total
