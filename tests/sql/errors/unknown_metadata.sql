-- error: UNKNOWN_METADATA
-- at: 1:32
CREATE STREAM x (a INT, b STRING METADATA FROM 'topik') WITH (source = 'files', format = 'json', path = '/tmp')
