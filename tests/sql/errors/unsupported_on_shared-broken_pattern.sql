-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT regexp_replace(k, '(', 'x') AS a FROM s
