-- error: VALUE_TOO_LARGE
-- at: 1:8
SELECT lpad('x', 1000000000, 'ab') AS a FROM s
