-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT count(DISTINCT id, k) FROM s
