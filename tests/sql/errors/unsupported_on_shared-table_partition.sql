-- error: UNSUPPORTED_ON_SHARED
-- at: 1:77
SELECT window_start, window_end, count(*) FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL 1 MINUTE) GROUP BY window_start, window_end
