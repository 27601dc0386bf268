-- error: TYPE_MISMATCH
-- at: 1:8
SELECT id AS (a, b) FROM s
