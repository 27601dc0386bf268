-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT map('a', 1) = map('a', 1) FROM s
