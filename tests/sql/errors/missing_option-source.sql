-- error: MISSING_OPTION
-- at: 1:1
CREATE STREAM x (a INT) WITH (format = 'json')
