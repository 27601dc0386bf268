-- error: UNKNOWN_COLUMN
-- at: 1:8
SELECT k FROM (SELECT id FROM s) q
