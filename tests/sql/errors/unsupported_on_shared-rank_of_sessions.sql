-- error: UNSUPPORTED_ON_SHARED
-- at: 1:11
SELECT k, rank() OVER (PARTITION BY session_window ORDER BY count(*)) AS r FROM s GROUP BY session_window(ts, '1 minute'), k
