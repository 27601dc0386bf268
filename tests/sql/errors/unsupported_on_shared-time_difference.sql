-- error: UNSUPPORTED_ON_SHARED
-- at: 1:8
SELECT ts - ts AS x FROM s
