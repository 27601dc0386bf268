-- error: TYPE_MISMATCH
-- at: 1:37
CREATE STREAM x (k STRING, i INT AS upper(k)) WITH (source = 'generator', format = 'json')
