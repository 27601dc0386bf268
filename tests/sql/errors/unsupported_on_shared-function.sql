-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT sentences(k) FROM s
