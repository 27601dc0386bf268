-- error: UNSUPPORTED_ON_SHARED
-- at: 1:18
SELECT count(*), now() AS t FROM s GROUP BY id
