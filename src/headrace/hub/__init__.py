"""The hub: statements in, running streams out."""
