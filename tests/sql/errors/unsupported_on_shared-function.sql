-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT to_char(k) FROM s
