"""Windows in queries: `GROUP BY window(ts, size[, slide[, offset]])`, `session_window(ts, gap)`, table functions."""

from __future__ import annotations

from typing import NoReturn

from headrace.errors import BadWindow, UnsupportedOnShared
from headrace.model.program import Window, WindowKind
from headrace.sql.parse.intervals import parse_interval
from headrace.sql.parse.syntax import Constant, IntervalConstant, Node, TextRange
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.logical import Plan, origin

# A window of a week that slides by a minute puts each row into 10,080 windows.
MAX_WINDOWS = 20_000


class WindowReader:
    """Reads the arguments of window functions."""

    def __init__(self, ctx: PlanContext) -> None:
        self.span = ctx.span

    def fail(self, message: str, advice: str, at: TextRange) -> NoReturn:
        raise BadWindow(message, advice=advice, span=self.span(at))

    def duration(self, node: Node) -> int:
        """A duration in microseconds: an interval, or a text such as '1 minute'."""
        if isinstance(node, IntervalConstant):
            months, micros = node.months, node.micros
        elif isinstance(node, Constant) and node.kind == "string":
            try:
                months, micros = parse_interval(node.text)
            except ValueError as problem:
                self.fail(f"this is not a duration: {problem}", "Write '1 minute' or INTERVAL 1 MINUTE.", node.at)
        else:
            self.fail("the length of a window must be a constant", "Write '1 minute' or INTERVAL 1 MINUTE.", node.at)
        if months:
            self.fail("months and years have no fixed length", "Use days or smaller units.", node.at)
        return micros

    def require_constant_gap(self, node: Node) -> None:
        """Raises UnsupportedOnShared for a gap that depends on the row. Spark has such sessions."""
        if not isinstance(node, IntervalConstant | Constant):
            raise UnsupportedOnShared(
                "a session with a computed gap cannot run on the shared host",
                advice="Write '1 minute' or INTERVAL 1 MINUTE.",
                span=self.span(node.at),
            )

    def grouping(self, name: str, args: tuple[Node, ...], at: TextRange) -> Window:
        """The window of `window(ts, ...)` or `session_window(ts, gap)`."""
        if name == "session_window":
            if len(args) != 2:
                self.fail("session_window takes the event time and a gap", "Write session_window(ts, '5 minutes').", at)
            self.require_constant_gap(args[1])
            gap = self.positive(args[1], "the gap")
            return Window("session", gap, gap)
        if not 2 <= len(args) <= 4:
            self.fail(
                "window takes the event time, a size, and optionally a slide and an offset",
                "Write window(ts, '1 minute').",
                at,
            )
        size = self.positive(args[1], "the size")
        slide = self.positive(args[2], "the slide") if len(args) > 2 else size
        offset = self.duration(args[3]) if len(args) > 3 else 0
        if slide > size:
            self.fail("the slide is longer than the window", "Make the slide at most the size.", args[2].at)
        if abs(offset) >= slide:
            self.fail("the offset must be smaller than the slide", "Make it smaller.", args[3].at)
        self.limit(size, slide, at)
        return Window("tumble" if slide == size else "hop", size, slide, offset % slide)

    def table(self, function: str, args: tuple[Node, ...], at: TextRange) -> Window:
        """The window of TUMBLE(..., size), HOP(..., slide, size), CUMULATE(..., step, size), SESSION(..., gap)."""
        counts = {"tumble": (1, 2), "hop": (2, 3), "cumulate": (2, 3), "session": (1, 1)}
        low, high = counts[function]
        usage = {
            "tumble": "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)",
            "hop": "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 5 MINUTES): the slide, then the size",
            "cumulate": "CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 1 HOUR): step, then size",
            "session": "SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL 5 MINUTES)",
        }[function]
        if not low <= len(args) <= high:
            self.fail(f"{function.upper()} has the wrong number of arguments", f"Write {usage}.", at)
        if function == "session":
            gap = self.positive(args[0], "the gap")
            return Window("session", gap, gap)
        size = self.positive(args[low - 1], "the size")
        slide = self.positive(args[0], "the slide")
        offset = self.duration(args[low]) if len(args) > low else 0
        if function == "cumulate" and size % slide:
            self.fail("the size must be a multiple of the step", f"Write {usage}.", args[0].at)
        if slide > size:
            self.fail("the slide is longer than the window", f"Write {usage}.", args[0].at)
        if abs(offset) >= slide:
            self.fail("the offset must be smaller than the slide", "Make it smaller.", args[low].at)
        self.limit(size, slide, at)
        kind: WindowKind = "cumulate" if function == "cumulate" else "tumble" if slide == size else "hop"
        return Window(kind, size, slide, offset % slide)

    def limit(self, size: int, slide: int, at: TextRange) -> None:
        """Limits size / slide: Ring 0 makes one row for each window that a row is in."""
        windows = -(-size // slide)
        if windows > MAX_WINDOWS:
            advice = "Make the slide longer, or the size shorter."
            self.fail(f"every row would be in {windows} windows; at most {MAX_WINDOWS} are allowed", advice, at)

    def positive(self, node: Node, what: str) -> int:
        micros = self.duration(node)
        if micros <= 0:
            self.fail(f"{what} must be greater than zero", "Write '1 minute' or INTERVAL 1 MINUTE.", node.at)
        return micros

    def require_event_time(self, plan: Plan, index: int | None, at: TextRange) -> int:
        """The index of the window's time column in `plan`. It must be the stream's event time, unchanged."""
        found = None if index is None else origin(plan, index)
        if (
            found is None
            or index is None
            or found[0].stream.event_time is None
            or found[0].stream.event_time != found[1]
        ):
            stream = None if found is None else found[0].stream
            if stream is not None and stream.event_time is None:
                advice = (
                    f"Declare one: CREATE STREAM {stream.name} (..., WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS)."
                )
                self.fail(f"stream '{stream.name}' has no event time", advice, at)
            advice = "Use the column of WATERMARK FOR, without any expression around it."
            self.fail("a window needs the event-time column of the stream", advice, at)
        return index
