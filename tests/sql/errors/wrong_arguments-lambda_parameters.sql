-- error: WRONG_ARGUMENTS
-- at: 1:24
SELECT transform(tags, (x, y, z) -> x) FROM s
