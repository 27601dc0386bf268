-- error: UNSUPPORTED_ON_SHARED
-- at: 1:24
SELECT transform(tags, x -> upper(x)) FROM s
