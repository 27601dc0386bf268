-- error: BAD_OPTION
-- at: 1:34
CREATE PIPELINE p INTO out WITH (late_sink = other) AS SELECT k, count(*) AS n FROM s GROUP BY k
