"""Turns syntax into logical plans: resolves names, and gives operands the types that Spark gives them."""
