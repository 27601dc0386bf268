-- error: TYPE_MISMATCH
-- at: 1:8
SELECT temp DIV 2 AS x FROM s
