-- error: UNSUPPORTED_ON_SHARED
-- at: 1:14
SELECT upper(explode(tags)) FROM s
