-- error: BAD_WINDOW
-- at: 1:47
SELECT window.start, k FROM s GROUP BY ROLLUP(window(ts, '1 minute'), k)
