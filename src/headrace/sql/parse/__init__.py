"""Turns text into statements and untyped syntax. Every node has its position in the text."""
