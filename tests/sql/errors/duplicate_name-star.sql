-- error: DUPLICATE_NAME
-- at: 1:11
SELECT *, id FROM s
