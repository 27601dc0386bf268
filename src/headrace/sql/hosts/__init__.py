"""The hosts of a pipeline: which one runs a query, and the plans of those that are not the shared host."""
