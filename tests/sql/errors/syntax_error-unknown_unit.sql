-- error: SYNTAX_ERROR
-- at: 1:22
SELECT timestampdiff(SECONDS, ts, ts) FROM s
