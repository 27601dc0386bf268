-- error: VALUE_TOO_LARGE
-- at: 1:8
SELECT repeat('x', 1000000000) AS a FROM s
