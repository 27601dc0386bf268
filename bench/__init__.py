"""Benchmarks: each prints ratios against a named alternative measured in the same run. See docs/benchmarks.md."""
