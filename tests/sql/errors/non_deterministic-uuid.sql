-- error: NON_DETERMINISTIC
-- at: 2:52
-- any host
CREATE PIPELINE p INTO out AS SELECT id, concat(k, uuid()) AS r FROM s;
