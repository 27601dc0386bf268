-- error: TYPE_MISMATCH
-- at: 1:8
SELECT listagg(tags) FROM s
