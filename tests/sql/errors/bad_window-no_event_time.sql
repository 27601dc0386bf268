-- error: BAD_WINDOW
-- at: 1:44
SELECT count(*) FROM plain GROUP BY window(a, '1 minute')
