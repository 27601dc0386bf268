"""One running stream: its query and supervisor, its plans, its status."""
