-- error: NOT_GROUPED
-- at: 1:11
SELECT k, temp, count(*) FROM s GROUP BY k
