-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT parse_json(k) FROM s
