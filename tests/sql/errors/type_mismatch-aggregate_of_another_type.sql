-- error: TYPE_MISMATCH
-- at: 1:27
SELECT aggregate(tags, 0, (n, x) -> x) FROM s
