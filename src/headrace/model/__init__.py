"""Plain data that all packages share: schemas, programs, status, and their JSON encoding."""
