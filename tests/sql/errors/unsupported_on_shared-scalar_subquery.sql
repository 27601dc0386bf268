-- error: UNSUPPORTED_ON_SHARED
-- at: 1:30
SELECT id FROM s WHERE id > (SELECT max(a) FROM plain)
