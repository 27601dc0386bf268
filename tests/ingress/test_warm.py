"""Opening a stream makes its kernels ready: on a new machine compiling takes seconds, which the gateway's loop, and so
every client, would spend waiting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# In a process of its own: kernels that other tests have used would be ready anyhow.
TRAFFIC = """
import sys
from pathlib import Path
import numba, numpy as np
from headrace.ingress import delimiting, shredder
from headrace.ingress.gateway import _open_journal
from headrace.ingress.kernels import buffer_tables, shred

def ready():
    kernels = [value for module in (shred, buffer_tables, delimiting) for value in vars(module).values()
               if isinstance(value, numba.core.registry.CPUDispatcher)]
    return {kernel.py_func.__name__: set(kernel.signatures) for kernel in kernels}

_open_journal(Path(sys.argv[1]), 1 << 20).close()
before = ready()
found = shredder.SequenceShredder()
for origin in range(100):
    found.arrive(np.array([(origin, 1, origin, 2, 2, 4, 0)], np.int64))
for sequence in range(2, 2000):  # a long record in small pieces
    found.arrive(np.array([(7, sequence, 1000 + sequence, -1, -1, 3, 0)], np.int64))
found.arrive(np.array([(7, 2000, 5000, 3, 3, 3, 1)], np.int64))
assert found.window(7) > 512 and found.close_if_complete(7) == 0 and found.close(8) == 2
quoted = delimiting.Delimiting.of_quoted(ord(","), ord('"'), ord("\\\\"))
for finder in (quoted, delimiting.Delimiting.of_token(b"\\r\\n")):
    for text in (b'a,"b\\r\\n"\\r\\n', bytearray(b"a\\r\\nb")):
        finder.search(text, 0, len(text), 0)
assert ready() == before, (before, ready())
assert all(before[name] for name in ("shred", "drop_origin", "move_ring", "remap", "reindex", "find_origin", "_run"))
"""


def test_no_kernel_is_compiled_after_a_stream_is_open(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAFFIC, str(tmp_path / "journal")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
