-- error: BAD_LITERAL
-- at: 1:8
SELECT DATE 'soon' AS x FROM s
