-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT stddev(DISTINCT temp) FROM s
