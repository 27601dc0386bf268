-- error: BAD_WINDOW
-- at: 1:44
SELECT count(*) FROM s GROUP BY window(ts, '0 seconds')
