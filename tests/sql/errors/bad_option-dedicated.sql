-- error: BAD_OPTION
-- at: 2:34
-- any host
CREATE PIPELINE p INTO out WITH (host = 'dedicated') AS SELECT id FROM s;
