-- error: UNSUPPORTED_ON_EPOCH
-- at: 2:71
-- any host
CREATE PIPELINE p INTO out WITH (host = 'epoch') AS SELECT id, rank() OVER (ORDER BY id) AS r FROM s;
