-- error: BAD_COMPUTED_COLUMN
-- at: 1:28
CREATE STREAM x (a INT AS (b + 1), b INT AS (a + 1)) WITH (source = 'generator', format = 'json')
