"""What the columns of the sequence shredder's arrays mean. `headrace.ingress.shredder` owns the arrays."""

from __future__ import annotations

# Columns of `heads`, a row per origin.
TAIL, RING, REFUSED, ORIGIN = 0, 1, 2, 3
HEAD_COLUMNS = 4
BASE = 3  # log2 of the bitmaps that an origin starts with; RING holds (offset << 8) | log2

# Columns of `nodes`, a row per buffer that waits: owner (slot + 1; 0 for a free row), position, the caller's
# reference, (first << 32 | last), (length << 16 | flags << 8 | end state).
OWNER, POSITION, REF, ENDS, REST = 0, 1, 2, 3, 4
NODE_COLUMNS = 5
HEAD_DONE, TAIL_DONE, DEFINITE, ENDED, PASSED, VIRTUAL = 1, 2, 4, 8, 16, 32

# Columns of `arrivals`. Flags: 1 = the buffer's end ends its last record.
A_ORIGIN, A_SEQUENCE, A_REF, A_FIRST, A_LAST, A_LENGTH, A_FLAGS = 0, 1, 2, 3, 4, 5, 6
ARRIVAL_COLUMNS = 7

# Columns of `units`: what a record, or a run of records, spans; its fragments follow each other in `fragments`.
U_ORIGIN, U_FROM, U_TO, U_FRAGMENTS, U_BYTES, U_FLAGS = 0, 1, 2, 3, 4, 5
UNIT_COLUMNS = 6
UNTERMINATED, SPANNING = 1, 2
GONE = 4  # in a journal that was repaired: its bytes cannot be read

# Cells of `totals`.
T_FREE_NODES, T_FREE_SLOTS, T_UNITS, T_FRAGMENTS, T_ORIGINS = 0, 1, 2, 3, 4
TOTALS = 5

OK, OUT_OF_RANGE, DUPLICATE, ZERO = 0, 1, 2, 3
