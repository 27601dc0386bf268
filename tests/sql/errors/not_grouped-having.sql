-- error: NOT_GROUPED
-- at: 1:45
SELECT k, count(*) FROM s GROUP BY k HAVING temp > 1
