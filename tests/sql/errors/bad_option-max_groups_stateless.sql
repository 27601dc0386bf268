-- error: BAD_OPTION
-- at: 1:34
CREATE PIPELINE p INTO out WITH (max_groups = 5) AS SELECT k FROM s
