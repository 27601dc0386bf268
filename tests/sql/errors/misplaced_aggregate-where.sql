-- error: MISPLACED_AGGREGATE
-- at: 1:23
SELECT k FROM s WHERE count(*) > 1
