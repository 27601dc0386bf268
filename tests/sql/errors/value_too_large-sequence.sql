-- error: VALUE_TOO_LARGE
-- at: 1:8
SELECT sequence(1, 100000000) FROM s
