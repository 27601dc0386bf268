-- error: UNKNOWN_COLUMN
-- at: 2:3
SELECT id,
  tmp
FROM s
