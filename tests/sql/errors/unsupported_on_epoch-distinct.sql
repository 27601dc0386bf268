-- error: UNSUPPORTED_ON_EPOCH
-- at: 2:60
-- any host
CREATE PIPELINE p INTO out WITH (host = 'epoch') AS SELECT DISTINCT id FROM s;
