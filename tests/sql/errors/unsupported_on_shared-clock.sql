-- error: UNSUPPORTED_ON_SHARED
-- at: 1:29
SELECT id FROM s WHERE ts > current_timestamp()
