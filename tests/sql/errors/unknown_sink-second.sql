-- error: UNKNOWN_SINK
-- at: 1:29
CREATE PIPELINE p INTO out, othr AS SELECT id FROM s
