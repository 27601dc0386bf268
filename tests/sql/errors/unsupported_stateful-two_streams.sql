-- error: UNSUPPORTED_STATEFUL
-- at: 2:55
-- any host
CREATE PIPELINE p INTO out AS SELECT s.id FROM s JOIN plain ON s.id = plain.a;
