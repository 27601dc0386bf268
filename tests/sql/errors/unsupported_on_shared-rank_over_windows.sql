-- error: UNSUPPORTED_ON_SHARED
-- at: 1:31
SELECT k, window.start AS w0, rank() OVER (PARTITION BY k ORDER BY count(*)) AS r FROM s GROUP BY window(ts, '1 minute'), k
