-- error: UNSUPPORTED_ON_SHARED
-- at: 1:31
SELECT id FROM s LATERAL VIEW json_tuple(k, 'a') t AS x
