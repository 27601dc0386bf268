"""Compile every kernel once after installing, so that no first epoch waits for it: `python scripts/warm.py`.

The compiled code lands in the user's cache directory; running this again costs a second.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from headrace.app.demo.show import script
from headrace.formats import FORMATS
from headrace.ingress.shredder import SequenceShredder
from headrace.model.program import Meaning
from headrace.ring0 import ready_kernels
from headrace.sources import SOURCES
from headrace.sql import CreateStream, define_stream, parse_script


def main() -> None:
    """What every start needs, what the demo's stream generates and decodes, the shredder."""
    ready_kernels.main()
    began = time.perf_counter()
    (statement,) = (s for s in parse_script(script("sensors")) if isinstance(s, CreateStream))
    stream = define_stream(statement, Meaning())
    fmt = FORMATS[stream.format].make(stream.record_schema, stream.options)
    with tempfile.TemporaryDirectory() as directory:
        source = SOURCES[stream.source].make(stream, Path(directory), time.time)
        (split,) = source.splits({"row": 0}, {"row": 100}, 1)
        for chunk in split.read(fmt):
            fmt.decode(chunk.data, range(len(stream.schema)), chunk.origin, chunk.offset)
    SequenceShredder().arrive(np.array([[1, 1, 0, 1, 1, 1, 0]]))
    print(f"the demo's stream is ready ({time.perf_counter() - began:.1f} s)")


if __name__ == "__main__":
    main()
