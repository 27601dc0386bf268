-- error: BAD_WINDOW
-- at: 1:38
SELECT count(*) AS n FROM s GROUP BY window(ts, '1 day', '1 millisecond')
