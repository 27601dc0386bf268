-- error: UNSUPPORTED_ON_SHARED
-- at: 1:11
SELECT k, rank() OVER (PARTITION BY window, upper(k) ORDER BY count(*)) AS r FROM s GROUP BY window(ts, '1 minute'), k
