-- error: TYPE_MISMATCH
-- at: 1:15
SELECT inline(tags) FROM s
