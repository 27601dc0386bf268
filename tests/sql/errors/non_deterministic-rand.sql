-- error: NON_DETERMINISTIC
-- at: 2:42
-- any host
CREATE PIPELINE p INTO out AS SELECT id, rand() AS r FROM s;
