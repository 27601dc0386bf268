-- error: UNKNOWN_COLUMN
-- at: 1:8
SELECT pos.alt FROM s
