-- error: MISPLACED_AGGREGATE
-- at: 1:12
SELECT sum(count(*)) FROM s
