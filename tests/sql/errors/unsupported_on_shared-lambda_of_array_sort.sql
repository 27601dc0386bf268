-- error: UNSUPPORTED_ON_SHARED
-- at: 1:25
SELECT array_sort(tags, (x, y) -> length(x) - length(y)) FROM s
