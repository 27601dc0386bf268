-- error: TYPE_MISMATCH
-- at: 1:21
SELECT filter(tags, x -> length(x)) FROM s
