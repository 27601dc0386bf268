-- error: DUPLICATE_NAME
-- at: 1:12
SELECT id, temp AS ID FROM s
