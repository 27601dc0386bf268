"""The routes of the REST API, one module per resource. `headrace.service.api` puts them together."""
