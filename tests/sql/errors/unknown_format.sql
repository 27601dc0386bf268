-- error: UNKNOWN_FORMAT
-- at: 1:53
CREATE STREAM x (a INT) WITH (source = 'generator', format = 'jason')
