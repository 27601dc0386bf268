-- error: SYNTAX_ERROR
-- at: 1:8
CREATE TABLE t (a INT) WITH (source = 'files')
