-- error: UNSUPPORTED_ON_SHARED
-- at: 1:24
SELECT id FROM s WHERE k rlike '((((a{999}){999}){999}){999})b'
