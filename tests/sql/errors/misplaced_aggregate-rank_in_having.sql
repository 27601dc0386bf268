-- error: MISPLACED_AGGREGATE
-- at: 1:59
SELECT k FROM s GROUP BY window(ts, '1 minute'), k HAVING rank() OVER (PARTITION BY window ORDER BY k) < 3
