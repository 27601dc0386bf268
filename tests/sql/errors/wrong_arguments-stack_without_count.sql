-- error: WRONG_ARGUMENTS
-- at: 1:8
SELECT stack(id, 1, 2) FROM s
