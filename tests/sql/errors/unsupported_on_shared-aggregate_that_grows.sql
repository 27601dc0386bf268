-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT aggregate(tags, '', (a, x) -> concat(a, x)) FROM s
