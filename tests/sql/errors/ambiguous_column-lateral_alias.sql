-- error: AMBIGUOUS_COLUMN
-- at: 1:35
SELECT id + 1 AS twin, k AS twin, twin AS other FROM s
