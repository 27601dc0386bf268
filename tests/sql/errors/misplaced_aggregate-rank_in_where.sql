-- error: MISPLACED_AGGREGATE
-- at: 1:24
SELECT id FROM s WHERE row_number() OVER (ORDER BY id) < 3
