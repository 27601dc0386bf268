"""Typed expressions, logical plans and physical plans."""
