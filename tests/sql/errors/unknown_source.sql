-- error: UNKNOWN_SOURCE
-- at: 1:31
CREATE STREAM x (a INT) WITH (source = 'filez', format = 'json')
