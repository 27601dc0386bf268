-- error: UNKNOWN_COLUMN
-- at: 1:19
SELECT '😀é' AS x, tmp FROM s
