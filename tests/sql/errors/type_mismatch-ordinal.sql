-- error: TYPE_MISMATCH
-- at: 1:36
SELECT k, count(*) FROM s GROUP BY 7
