-- error: TYPE_MISMATCH
-- at: 1:8
SELECT sequence(k, k) FROM s
