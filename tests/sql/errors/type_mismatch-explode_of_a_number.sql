-- error: TYPE_MISMATCH
-- at: 1:16
SELECT explode(id) FROM s
