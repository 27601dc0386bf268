-- error: UNKNOWN_OPTION
-- at: 1:70
CREATE STREAM x (a INT) WITH (source = 'generator', format = 'json', speed = 3)
