-- error: UNSUPPORTED_ON_SHARED
-- at: 1:17
SELECT id FROM s, plain
