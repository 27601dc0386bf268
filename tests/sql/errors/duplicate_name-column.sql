-- error: DUPLICATE_NAME
-- at: 1:25
CREATE STREAM x (a INT, A STRING) WITH (source = 'generator', format = 'json')
