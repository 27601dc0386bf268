"""Take the pictures of the terminal views in docs/images: a real `headrace run`, `top` and `check` in tmux, as SVG.

Needs Debian's package tmux. `python -m scripts.terminal_pictures [DIRECTORY]`.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from scripts.screenshots import APP

WIDTH, HEIGHT = 118, 30
LIMIT_SECONDS = 300
WARM_SECONDS = 20
BROKEN = "CREATE PIPELINE hot INTO alarms AS\n  SELECT ts, device, temp FROM sensors WHERE tmp > 33;\n"


class Terminal:
    """A tmux server of its own, with one window for each command."""

    def __init__(self, work: Path) -> None:
        self._work, self._tmux = work, ["tmux", "-L", f"headrace-{work.name}", "-f", "/dev/null"]

    def open(self, name: str, command: str) -> None:
        """Run a command in a new window. The window stays when the command ends."""
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        shell = f"cd {self._work} && {command}; sleep 3600"
        subprocess.run([*self._tmux, "new-session", "-d", "-s", name, *size, shell], check=True)

    def seen(self, name: str) -> str:
        """What the window shows, with colors as escape sequences."""
        command = [*self._tmux, "capture-pane", "-p", "-e", "-t", name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()

    def wait(self, name: str, wanted: str) -> None:
        """Wait until the window shows a text."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not re.search(wanted, Text.from_ansi(self.seen(name)).plain):
            if time.monotonic() > deadline:
                sys.exit(f"{name} does not show {wanted}:\n{self.seen(name)}")
            time.sleep(0.5)

    def interrupt(self, name: str) -> None:
        """Press Ctrl-C."""
        subprocess.run([*self._tmux, "send-keys", "-t", name, "C-c"], check=True)

    def close(self) -> None:
        """End all windows."""
        subprocess.run([*self._tmux, "kill-server"], check=False)


@contextmanager
def terminal(work: Path) -> Iterator[Terminal]:
    """A terminal that is closed at the end."""
    opened = Terminal(work)
    try:
        yield opened
    finally:
        opened.close()


def picture(seen: str, title: str, target: Path) -> None:
    """Write what a window shows as an SVG. Browsers use their own fixed-width font: no font is loaded."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(seen))
    drawn = console.export_svg(title=title, unique_id=target.stem)
    target.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), encoding="utf-8")
    print(f"{target}: {target.stat().st_size // 1000} KB")


def main() -> None:
    """Take all pictures."""
    if shutil.which("tmux") is None:
        sys.exit("needs tmux (Debian: apt-get install tmux)")
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "images"
    target.mkdir(parents=True, exist_ok=True)
    headrace = Path(sys.executable).with_name("headrace")
    with tempfile.TemporaryDirectory(prefix="headrace-pictures-") as scratch, terminal(Path(scratch)) as screen:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        app = APP.format(start=now)
        (Path(scratch) / "app.sql").write_text(app)
        (Path(scratch) / "broken.sql").write_text(app.split("CREATE PIPELINE")[0].lstrip() + BROKEN)
        screen.open("check", f"clear; {headrace} check broken.sql")
        screen.open("run", f"clear; {headrace} run app.sql 2>&1 >/dev/null")
        screen.wait("check", "Did you mean")
        picture(screen.seen("check"), "headrace check app.sql", target / "terminal-check.svg")
        screen.wait("run", r"Ctrl-C stops")
        time.sleep(WARM_SECONDS)
        picture(screen.seen("run"), "headrace run app.sql", target / "terminal-run.svg")
        screen.open("top", f"clear; {headrace} top")
        screen.wait("top", "sensors")
        time.sleep(5)
        picture(screen.seen("top"), "headrace top", target / "terminal-top.svg")
        screen.interrupt("run")
        screen.wait("run", "rows in")


if __name__ == "__main__":
    main()
