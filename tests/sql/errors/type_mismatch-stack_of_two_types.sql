-- error: TYPE_MISMATCH
-- at: 1:20
SELECT stack(2, 1, 'a') FROM s
