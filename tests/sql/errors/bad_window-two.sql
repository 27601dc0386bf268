-- error: BAD_WINDOW
-- at: 1:57
SELECT count(*) FROM s GROUP BY window(ts, '1 minute'), session_window(ts, '1 minute')
