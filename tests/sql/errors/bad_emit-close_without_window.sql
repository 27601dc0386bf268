-- error: BAD_EMIT
-- at: 1:38
SELECT k, count(*) FROM s GROUP BY k EMIT ON CLOSE
