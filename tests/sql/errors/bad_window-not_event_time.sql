-- error: BAD_WINDOW
-- at: 1:40
SELECT count(*) FROM s GROUP BY window(at, '1 minute')
