-- error: BAD_EMIT
-- at: 1:110
SELECT k, rank() OVER (PARTITION BY window ORDER BY count(*)) AS r FROM s GROUP BY window(ts, '1 minute'), k EMIT CHANGES
