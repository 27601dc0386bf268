"""Syntax to logical plans: names are resolved, operands get Spark's types."""
