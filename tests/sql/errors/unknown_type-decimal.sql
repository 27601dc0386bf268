-- error: UNKNOWN_TYPE
-- at: 1:20
CREATE STREAM x (a DECIMAL(40,2)) WITH (source = 'generator', format = 'json')
