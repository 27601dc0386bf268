"""A flame graph of headrace's Python processes while epochs of workload (c) run, and its three largest costs.

py-spy samples the tasks, the planner and the driver. Waiting threads are left out. The picture is
docs/images/peers-flame.svg; every frame has a title with its share, so that a browser shows it.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from bench.peers.environments import environment

PACKAGES = ("py-spy==0.4.3",)
RATE = 100
_WIDTH, _ROW, _LEAST = 1200.0, 17, 0.003  # frames below a share of 0.3 % are not drawn
_COLOURS = ("#e4604e", "#e8894a", "#e8a64a", "#d9b44a", "#c97b4a")
# What a stack is counted as: the first of these of which some frame has a text.
COSTS = (
    ("decoding JSON", ("headrace/formats/",)),
    ("Ring 1: state and closing windows", ("headrace/ring1/", "headrace/spark/state_host")),
    ("Ring 0: the rest", ("headrace/ring0/",)),
    ("sinks", ("headrace/sinks/",)),
    ("planning and committing", ("headrace/spark/", "headrace/sources/", "headrace/state/", "headrace/stream/")),
    ("Spark's Python workers: reading and writing rows", ("pyspark/",)),
)
# In Ring 0 the frame of these that is nearest to the leaf decides.
RING0 = (
    ("Ring 0: passes in DuckDB", ("headrace/exec/",)),
    ("Ring 0: aggregating and encoding by kernels", ("headrace/ring0/fold",)),
    (
        "Ring 0: cutting and sending partial results",
        ("headrace/ring0/cuts", "headrace/ring0/encoded_pieces", "headrace/bridge/", "Runner.finish "),
    ),
)
# The loop that sends messages is below everything that a task does.
SENDS = "batches (headrace/bridge/messages"
# Stacks that only wait, or are this program's own.
IDLE = ("manager (", "bench/peers/")


@dataclass(slots=True)
class Frame:
    """A function in the graph: samples in it and below, and what it called."""

    name: str
    samples: int = 0
    called: dict[str, Frame] = field(default_factory=dict)

    def add(self, stack: list[str], samples: int) -> None:
        self.samples += samples
        if stack:
            self.called.setdefault(stack[0], Frame(stack[0])).add(stack[1:], samples)

    def depth(self) -> int:
        return 1 + max((frame.depth() for frame in self.called.values()), default=0)


class Recorder:
    """Samples a process and all its children, from `start` until the block ends. Then `stacks` has the samples."""

    def __init__(self, pid: int, out: Path) -> None:
        self._out = out
        self._tool = environment("tools", PACKAGES).parent / "py-spy"
        self._pid = pid
        self._process: subprocess.Popen[str] | None = None
        self.stacks: list[tuple[list[str], int]] = []

    def start(self) -> None:
        command = [str(self._tool), "record", "--pid", str(self._pid), "--subprocesses", "--format", "raw"]
        command += ["--rate", str(RATE), "--nonblocking", "--full-filenames", "--output", str(self._out)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # it writes what it has
        said = self._process.communicate(timeout=60)[0]
        if kind is None:
            if not self._out.exists():
                raise RuntimeError(f"py-spy: {said.strip()[-500:]}")
            self.stacks = parse(self._out.read_text())


def parse(text: str) -> list[tuple[list[str], int]]:
    """py-spy's raw form: frames with semicolons between them, a space, the number of samples."""
    found = []
    for line in text.splitlines():
        frames, _, samples = line.rpartition(" ")
        stack = [short(frame) for frame in frames.split(";") if not frame.startswith(("process ", "thread "))]
        if stack and not stack[-1].startswith(IDLE[0]) and not any(IDLE[1] in frame for frame in stack):
            found.append((stack, int(samples)))
    return found


def short(frame: str) -> str:
    """A frame without the machine's directories and line: `run (headrace/ring0/task.py)`."""
    found = re.fullmatch(r"(.*) \((.*?)(?::\d+)?\)", frame)
    if found is None:
        return frame
    path = re.sub(r"^.*/(?:site-packages|src|lib/python[\d.]+|python\.zip)/", "", found[2])
    return f"{found[1]} ({path.lstrip('/')})"


def costs(stacks: list[tuple[list[str], int]]) -> list[tuple[str, float]]:
    """The share of each cost, the largest first."""
    counted: Counter[str] = Counter()
    for stack, samples in stacks:
        counted[_cost(stack)] += samples
    total = sum(counted.values())
    return [(name, samples / total) for name, samples in counted.most_common()]


def _cost(stack: list[str]) -> str:
    for name, places in COSTS:
        if any(place in frame for frame in stack for place in places):
            return _ring0(stack) or name if "headrace/ring0/" in places else name
    return "other"


def _ring0(stack: list[str]) -> str:
    """What Ring 0 does; empty if it is nothing of `RING0`."""
    for frame in reversed(stack):
        for name, places in RING0:
            if not frame.startswith(SENDS) and any(place in frame for place in places):
                return name
    return ""


def hottest(stacks: list[tuple[list[str], int]], cost: str) -> str:
    """Where most samples of a cost are: the function of ours nearest to the leaf."""
    counted: dict[str, int] = defaultdict(int)
    for stack, samples in stacks:
        if _cost(stack) == cost:
            ours = [frame for frame in stack if "headrace/" in frame] or stack
            counted[ours[-1]] += samples
    return max(counted, key=lambda frame: counted[frame])


def draw(stacks: list[tuple[list[str], int]], title: str) -> str:
    """The graph as SVG, the root at the bottom."""
    root = Frame("all")
    for stack, samples in stacks:
        root.add(stack, samples)
    height = (root.depth() + 2) * _ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height}" font-family="monospace" '
        f'font-size="11" role="img" aria-label="{escape(title)}">',
        f'<rect width="{_WIDTH:.0f}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="14" font-size="13" fill="#263238">{escape(title)}</text>',
        *_boxes(root, 0.0, _WIDTH, height - _ROW, root.samples),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _boxes(frame: Frame, x: float, width: float, y: int, total: int) -> Iterator[str]:
    share = frame.samples / total
    if share < _LEAST:
        return
    colour = _COLOURS[sum(frame.name.encode()) % len(_COLOURS)]
    label = escape(frame.name[: int(width / 6.7)]) if width > 30 else ""
    yield (
        f"<g><title>{escape(frame.name)}: {share:.1%}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" height="{_ROW - 1}" fill="{colour}"/>'
        f'<text x="{x + 2:.1f}" y="{y + 12}">{label}</text></g>'
    )
    for called in sorted(frame.called.values(), key=lambda found: found.name):
        inner = width * called.samples / frame.samples
        yield from _boxes(called, x, inner, y - _ROW, total)
        x += inner
