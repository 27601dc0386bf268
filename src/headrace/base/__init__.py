"""Tools that know nothing of streams: durable files, options, caches, background work."""
