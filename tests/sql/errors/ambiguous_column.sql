-- error: AMBIGUOUS_COLUMN
-- at: 1:8
SELECT x FROM (SELECT id AS x, temp AS x FROM s) q
