-- error: BAD_OPTION
-- at: 1:34
CREATE PIPELINE p INTO out WITH (max_group_values = 5) AS SELECT k, count(*) AS n FROM s GROUP BY k
