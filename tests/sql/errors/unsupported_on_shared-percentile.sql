-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT percentile(temp, 0.5) FROM s
