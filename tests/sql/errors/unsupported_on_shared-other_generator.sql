-- error: UNSUPPORTED_ON_SHARED
-- at: 1:31
SELECT id FROM s LATERAL VIEW variant_explode(k) t AS x
