-- error: TYPE_MISMATCH
-- at: 1:8
SELECT ok + 1 FROM s
