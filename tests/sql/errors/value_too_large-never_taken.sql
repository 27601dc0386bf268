-- error: VALUE_TOO_LARGE
-- at: 1:34
SELECT CASE WHEN n > 1 THEN k || repeat('x', 1000000000) END AS a FROM s
