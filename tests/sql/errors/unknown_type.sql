-- error: UNKNOWN_TYPE
-- at: 1:20
CREATE STREAM x (a INTT) WITH (source = 'generator', format = 'json')
