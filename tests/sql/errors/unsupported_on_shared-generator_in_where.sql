-- error: UNSUPPORTED_ON_SHARED
-- at: 1:24
SELECT id FROM s WHERE explode(tags) = 'a'
