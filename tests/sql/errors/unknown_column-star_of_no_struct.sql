-- error: UNKNOWN_COLUMN
-- at: 1:8
SELECT tags.* FROM s
