"""The ground floor: files that survive a crash, options, caches, background work. Knows nothing of streams."""
