"""Clients of message brokers, as sources and sinks use them: settings, connections, and errors with codes."""
