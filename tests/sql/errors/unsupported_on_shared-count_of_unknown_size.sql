-- error: UNSUPPORTED_ON_SHARED
-- at: 1:18
SELECT repeat(k, length(repeat(k, id))) AS a FROM s
