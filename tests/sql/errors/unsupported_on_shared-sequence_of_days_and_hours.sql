-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT sequence(ts, ts, INTERVAL 25 HOURS) FROM s
