-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT collect_set(DISTINCT k) FROM s
