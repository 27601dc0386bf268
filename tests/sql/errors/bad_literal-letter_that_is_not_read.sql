-- error: BAD_LITERAL
-- at: 1:24
SELECT to_timestamp(k, 'EEE yyyy') FROM s
