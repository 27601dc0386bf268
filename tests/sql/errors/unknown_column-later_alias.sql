-- error: UNKNOWN_COLUMN
-- at: 1:8
SELECT nxt + 1 AS a, id AS nxt FROM s
