-- error: UNKNOWN_COLUMN
-- at: 1:18
SELECT * EXCEPT (nope) FROM s
