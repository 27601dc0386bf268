"""Take the pictures of the terminal views in docs/images, as SVG: `headrace check`, `doctor`, `run`, `top` and `demo`.

They really run, in tmux. Only the paths of this machine are replaced.

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
LIMIT_SECONDS = 600
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
        take = _Take(screen, headrace, target, Path(scratch))
        take("check", "check broken.sql", "Did you mean", "headrace check app.sql")
        take("doctor", "doctor", r"port: ")
        # Standard output has the lines of the statements; the picture is of the view alone.
        take("run", "run app.sql 2>&1 >/dev/null", r"climate +running +[1-9]", "headrace run app.sql")
        take("top", "top", r"climate +running +[1-9]")
        screen.interrupt("run")
        screen.wait("run", r"stream sensors \S+ rows in")
        take("demo", "demo --duration 60", r"power +running +\d")


class _Take:
    """Takes pictures of commands."""

    def __init__(self, screen: Terminal, headrace: Path, target: Path, work: Path) -> None:
        self._screen, self._headrace, self._target = screen, headrace, target
        self._places = {work: "/home/me/my-project", headrace.parents[1]: "/home/me/.venv", Path.home(): "/home/me"}

    def __call__(self, name: str, command: str, wanted: str, title: str = "") -> None:
        """Run a command, wait for a text, and take the picture. The command goes on."""
        self._screen.open(name, f"clear; {self._headrace} {command}")
        self._screen.wait(name, wanted)
        seen = self._screen.seen(name)
        for place, shown in self._places.items():
            seen = seen.replace(str(place), shown)
        picture(seen, title or f"headrace {command}", self._target / f"terminal-{name}.svg")


if __name__ == "__main__":
    main()
