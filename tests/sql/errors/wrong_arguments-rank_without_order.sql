-- error: WRONG_ARGUMENTS
-- at: 1:11
SELECT k, rank() OVER (PARTITION BY window) AS r FROM s GROUP BY window(ts, '1 minute'), k
