-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT soundex(k) FROM s
