"""Text to statements and untyped syntax. Every node knows its place in the text."""
