-- error: MISPLACED_AGGREGATE
-- at: 1:29
SELECT transform(tags, x -> count(x)) FROM s
