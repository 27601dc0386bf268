-- error: UNKNOWN_COLUMN
-- at: 1:8
SELECT s.nothing FROM s
