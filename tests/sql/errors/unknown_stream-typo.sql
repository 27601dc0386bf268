-- error: UNKNOWN_STREAM
-- at: 1:15
SELECT a FROM plian
