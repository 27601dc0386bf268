-- error: BAD_LITERAL
-- at: 1:24
SELECT date_format(ts, 'YYYY-MM-DD') FROM s
