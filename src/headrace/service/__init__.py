"""The hub as a service: a REST API on a Unix socket and on TCP, live events, metrics, and a client for both."""
