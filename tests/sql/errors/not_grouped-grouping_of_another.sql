-- error: NOT_GROUPED
-- at: 1:20
SELECT k, grouping(id) FROM s GROUP BY ROLLUP(k)
