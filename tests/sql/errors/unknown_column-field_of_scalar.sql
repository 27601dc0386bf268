-- error: UNKNOWN_COLUMN
-- at: 1:8
SELECT temp.x FROM s
