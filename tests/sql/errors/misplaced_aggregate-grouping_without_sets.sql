-- error: MISPLACED_AGGREGATE
-- at: 1:11
SELECT k, grouping(k) FROM s GROUP BY k
