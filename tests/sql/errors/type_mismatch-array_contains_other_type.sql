-- error: TYPE_MISMATCH
-- at: 1:8
SELECT array_contains(tags, 1) FROM s
