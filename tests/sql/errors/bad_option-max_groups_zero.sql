-- error: BAD_OPTION
-- at: 1:34
CREATE PIPELINE p INTO out WITH (max_groups = 0) AS SELECT k, count(*) AS n FROM s GROUP BY k
