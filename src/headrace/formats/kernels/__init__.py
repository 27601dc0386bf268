"""Numba kernels: bytes to field positions (scan), field positions to values (parse). Only `formats` calls them.

Every kernel keeps these rules: no global state, no GIL, and no read outside its arrays (simd.py guards the wide loads).
Positions are int64 and never mix with uint64 words, because Numba would convert both to floats.
"""
