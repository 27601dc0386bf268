-- error: UNKNOWN_COLUMN
-- at: 1:40
SELECT transform(tags, x -> upper(x)), x FROM s
