-- error: BAD_WINDOW
-- at: 1:22
SELECT count(*) FROM TUMBLE(TABLE s, DESCRIPTOR(ts)) GROUP BY window_start, window_end
