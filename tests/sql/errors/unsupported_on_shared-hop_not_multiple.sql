-- error: UNSUPPORTED_ON_SHARED
-- at: 1:33
SELECT count(*) FROM s GROUP BY window(ts, '10 minutes', '3 minutes')
