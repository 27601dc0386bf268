-- error: UNKNOWN_STREAM
-- at: 2:31
-- any host
CREATE PIPELINE p INTO out AS SELECT a.x FROM dim a JOIN other b ON a.x = b.x;
