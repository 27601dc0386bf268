-- error: UNBOUNDED_SORT
-- at: 2:48
-- any host
CREATE PIPELINE p INTO out AS SELECT id FROM s ORDER BY id;
