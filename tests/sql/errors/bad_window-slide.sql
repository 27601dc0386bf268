-- error: BAD_WINDOW
-- at: 1:56
SELECT count(*) FROM s GROUP BY window(ts, '1 minute', '2 minutes')
