"""Typed expressions, logical and physical plans."""
