-- error: UNSUPPORTED_ON_SHARED
-- at: 1:12
SELECT id, explode(tags) AS a FROM s GROUP BY id
