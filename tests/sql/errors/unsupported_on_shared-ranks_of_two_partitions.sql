-- error: UNSUPPORTED_ON_SHARED
-- at: 1:11
SELECT k, rank() OVER (PARTITION BY window, k ORDER BY count(*)) AS r, rank() OVER (PARTITION BY window ORDER BY count(*)) AS q FROM s GROUP BY window(ts, '1 minute'), k
