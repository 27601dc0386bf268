-- error: BAD_LITERAL
-- at: 1:8
SELECT 300Y AS x FROM s
