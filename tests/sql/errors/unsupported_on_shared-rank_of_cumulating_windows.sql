-- error: UNSUPPORTED_ON_SHARED
-- at: 1:11
SELECT k, rank() OVER (PARTITION BY window_start ORDER BY count(*)) AS r FROM CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 1 HOUR) GROUP BY window_start, window_end, k
