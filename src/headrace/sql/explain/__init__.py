"""EXPLAIN as text and as JSON."""
