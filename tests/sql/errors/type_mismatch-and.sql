-- error: TYPE_MISMATCH
-- at: 1:31
SELECT id FROM s WHERE ok AND id
