-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT transform(tags, 1) FROM s
