-- error: AMBIGUOUS_COLUMN
-- at: 1:8
SELECT id FROM s LATERAL VIEW explode(tags) t AS id
