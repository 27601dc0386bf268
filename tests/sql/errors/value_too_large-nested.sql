-- error: VALUE_TOO_LARGE
-- at: 1:15
SELECT length(repeat(repeat(repeat('x', 1000), 1000), 1000)) AS a FROM s
