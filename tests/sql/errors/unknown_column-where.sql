-- error: UNKNOWN_COLUMN
-- at: 1:24
SELECT id FROM s WHERE humidity > 1
