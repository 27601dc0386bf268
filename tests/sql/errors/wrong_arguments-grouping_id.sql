-- error: WRONG_ARGUMENTS
-- at: 1:11
SELECT k, grouping_id(id, k) FROM s GROUP BY ROLLUP(k, id)
