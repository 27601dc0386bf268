-- error: SYNTAX_ERROR
-- at: 1:24
SELECT transform(tags, (t) -> upper(t)) AS t FROM s
