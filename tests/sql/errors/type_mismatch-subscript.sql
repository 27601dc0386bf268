-- error: TYPE_MISMATCH
-- at: 1:8
SELECT id[0] FROM s
