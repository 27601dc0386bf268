"""Typed expressions to DuckDB SQL, and bounds on the size of their values."""
