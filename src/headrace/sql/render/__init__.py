"""Turns typed expressions into DuckDB SQL, and bounds the size of their values."""
