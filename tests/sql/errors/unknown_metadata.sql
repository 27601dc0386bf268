-- error: UNKNOWN_METADATA
-- at: 1:34
CREATE STREAM x (a INT, b STRING METADATA FROM 'topik') WITH (source = 'files', format = 'json', path = '/tmp')
