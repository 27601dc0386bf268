-- error: TYPE_MISMATCH
-- at: 1:8
SELECT ts - ts AS x FROM s
