-- error: UNKNOWN_COLUMN
-- at: 1:8
SELECT x.* FROM s
