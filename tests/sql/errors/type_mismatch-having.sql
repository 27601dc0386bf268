-- error: TYPE_MISMATCH
-- at: 1:48
SELECT k, sum(n) AS t FROM s GROUP BY k HAVING sum(n)
