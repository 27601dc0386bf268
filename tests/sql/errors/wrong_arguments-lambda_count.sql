-- error: WRONG_ARGUMENTS
-- at: 1:8
SELECT transform(tags, 1, 2) FROM s
