"""The plain data that all rooms share: schemas, programs, status, and how they are stored as JSON."""
