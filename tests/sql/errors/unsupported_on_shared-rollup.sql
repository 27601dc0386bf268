-- error: UNSUPPORTED_ON_SHARED
-- at: 1:36
SELECT k, count(*) FROM s GROUP BY ROLLUP (k)
