-- error: UNSUPPORTED_ON_SHARED
-- at: 1:28
SELECT explode(tags) AS a, count(*) FROM s
