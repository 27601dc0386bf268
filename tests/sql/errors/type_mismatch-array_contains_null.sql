-- error: TYPE_MISMATCH
-- at: 1:8
SELECT array_contains(tags, NULL) FROM s
