-- error: TYPE_MISMATCH
-- at: 1:8
SELECT array() FROM s
