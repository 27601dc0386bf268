"""Numba kernels: bytes to field positions (scan), field positions to values (parse). Entered only from `formats`.

Rules that every kernel keeps: no global state, no GIL, no read outside the arrays it was given (simd.py guards the
wide loads), and int64 positions that never mix with uint64 words, because Numba would make floats of the two.
"""
