-- error: WRONG_ARGUMENTS
-- at: 1:8
SELECT coalesce(k, 'x') IGNORE NULLS FROM s
