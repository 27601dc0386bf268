-- error: TYPE_MISMATCH
-- at: 1:24
SELECT id FROM s WHERE temp
