-- error: UNSUPPORTED_ON_SHARED
-- at: 1:18
SELECT id FROM s LATERAL VIEW explode(tags) t AS tag
