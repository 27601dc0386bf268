-- error: UNSUPPORTED_ON_SHARED
-- at: 1:27
SELECT id + 1 AS nxt, sum(nxt) AS total FROM s GROUP BY id
