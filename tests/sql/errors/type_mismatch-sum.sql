-- error: TYPE_MISMATCH
-- at: 1:8
SELECT sum(ok) FROM s
