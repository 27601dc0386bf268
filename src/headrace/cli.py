"""The `headrace` command.

Mistakes are told by code, message and advice on standard error with exit code 2; a pipeline that fails while it runs
gives exit code 1. Stack traces are for `--verbose`. Nothing here imports Spark before a command needs it.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from headrace.errors import HeadraceError, HubUnreachable, InternalError, MissingFile, MissingJava, UnreadableFile
from headrace.planning import plan_only

app = typer.Typer(
    name="headrace",
    help="SQL pipelines that share one raw stream on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Script = Annotated[Path, typer.Argument(help="A script of SQL statements; - reads standard input.", show_default=False)]
StateDir = Annotated[Path, typer.Option(help="Where streams, pipelines and progress are kept.")]
Master = Annotated[str | None, typer.Option(help="Spark master: local[4], spark://host:7077, ... (default local[*]).")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's log, and stack traces of errors.")]


StopLimit = Annotated[
    float, typer.Option(min=0, help="Seconds that running epochs get to finish when it is told to stop.")
]
Server = Annotated[
    str | None, typer.Option(help="URL of a hub (default: the owner of the state directory); token in HEADRACE_TOKEN.")
]
Format = Annotated[Literal["table", "json", "csv"], typer.Option(help="How results are printed.")]
LogFormat = Annotated[
    Literal["text", "json"], typer.Option(help="Log lines on standard error and in the state directory.")
]


@app.command(epilog="Examples: headrace run app.sql; headrace run app.sql --until-end --state-dir /data/state")
def run(
    script: Script,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop when all finite sources are drained.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only plan it, against the state directory; no effect.")
    ] = False,
    stop_limit: StopLimit = 60,
    state_dir: StateDir = Path(".headrace"),
    master: Master = None,
    log_format: LogFormat = "text",
    verbose: Verbose = False,
) -> None:
    """Run a script of statements, until Ctrl-C or SIGTERM.

    Then it finishes the running epochs, says what it waited for, and ends with exit code 0; a second one quits at
    once. Running the same script again with the same state directory goes on where it stopped.
    """
    with _reported(verbose):
        text = _read(script)
        if check:
            _check(script, text, state_dir)
            return
        from headrace.running import run_script

        code = run_script(
            text,
            until_end=until_end,
            state_dir=state_dir,
            master=master,
            verbose=verbose,
            stop_limit=stop_limit,
            log_format=log_format,
        )
    raise typer.Exit(code)


@app.command(epilog="Examples: headrace serve; headrace serve app.sql --port 8642 --token-file /etc/headrace/token")
def serve(
    script: Annotated[
        Path | None, typer.Argument(help="A script to run first; - reads standard input.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8642,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients must send (or set HEADRACE_TOKEN).")
    ] = None,
    read_token_file: Annotated[
        Path | None, typer.Option(help="File with a token that may only read (or set HEADRACE_READ_TOKEN).")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name by which clients reach this hub; may be repeated.")
    ] = None,
    stop_limit: StopLimit = 60,
    state_dir: StateDir = Path(".headrace"),
    master: Master = None,
    log_format: LogFormat = "text",
    log_level: Annotated[
        Literal["info", "warning", "error"], typer.Option(help="What is logged on standard error; info: every epoch.")
    ] = "info",
    verbose: Verbose = False,
) -> None:
    """Serve a hub over HTTP, until Ctrl-C or SIGTERM: pipelines join and leave by REST, browser or `headrace sql`.

    The hub also listens on a Unix socket in the state directory, as every hub does.
    """
    with _reported(verbose):
        text = None if script is None else _read(script)
        from headrace.serving import Address, serve_hub

        address = Address.settle(host, port, token_file, read_token_file, tuple(allow_host or ()))
        serve_hub(
            text,
            address,
            state_dir=state_dir,
            master=master,
            verbose=verbose,
            stop_limit=stop_limit,
            log_format=log_format,
            log_level=getattr(logging, log_level.upper()),
        )


@app.command(epilog="Examples: headrace sql; headrace sql -c 'SHOW PIPELINES' --format json; headrace sql -f more.sql")
def sql(
    command: Annotated[str | None, typer.Option("--command", "-c", help="Run these statements and leave.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Run this script and leave; - reads standard input.")
    ] = None,
    server: Server = None,
    format: Format = "table",
    state_dir: StateDir = Path(".headrace"),
    verbose: Verbose = False,
) -> None:
    """Send statements to a running hub. Without -c or -f, a prompt; \\? lists its commands.

    The hub is the owner of the state directory, or the one at --server. When no process owns the directory, statements
    that only read are answered from it. Exit code 2 when a statement fails, 3 when the hub cannot be reached.
    """
    with _reported(verbose):
        from headrace.service.talking import statements

        text = command if command is not None else None if file is None else _read(file)
        code = statements(text, server, state_dir, format)
    raise typer.Exit(code)


@app.command(epilog="Examples: headrace status; headrace status --server http://127.0.0.1:8642 --format json")
def status(
    server: Server = None, format: Format = "table", state_dir: StateDir = Path(".headrace"), verbose: Verbose = False
) -> None:
    """Show streams and pipelines of a running hub, or of a state directory that no process owns."""
    with _reported(verbose):
        from headrace.service.talking import statements

        code = statements("SHOW STREAMS; SHOW PIPELINES", server, state_dir, format)
    raise typer.Exit(code)


@app.command(epilog="Example: headrace top --state-dir /data/state")
def top(server: Server = None, state_dir: StateDir = Path(".headrace"), verbose: Verbose = False) -> None:
    """Watch the streams and pipelines of a running hub, until Ctrl-C."""
    with _reported(verbose):
        from headrace.watching import watch

        watch(server, state_dir)


@app.command(epilog="Examples: headrace logs -n 200; headrace logs --state-dir /data/state")
def logs(
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines to show.")] = 50,
    state_dir: StateDir = Path(".headrace"),
    verbose: Verbose = False,
) -> None:
    """Show the newest log lines of a state directory, also after a crash, and where its log files are."""
    with _reported(verbose):
        from headrace.logs import FILES, last_lines

        if not state_dir.is_dir():
            raise MissingFile(f"there is no directory {state_dir}", advice="Name one with --state-dir.")
        found = last_lines(state_dir, lines)
        for line in found:
            print(line)
        for name, what in FILES.items():
            if (state_dir / name).exists():
                print(f"{state_dir / name}: {what}", file=sys.stderr)


@app.command(epilog="Example: headrace check app.sql")
def check(script: Script, verbose: Verbose = False) -> None:
    """Plan every statement of a script and say what is wrong with it. Applies nothing, needs no Java."""
    with _reported(verbose):
        _check(script, _read(script), None)


@app.command(epilog="Examples: headrace explain app.sql; headrace explain app.sql --pipeline hot --json")
def explain(
    script: Script,
    pipeline: Annotated[str | None, typer.Option(help="Only this pipeline.")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Also show what each planner rule changed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    verbose: Verbose = False,
) -> None:
    """Show the plan of every pipeline and SELECT of a script. Applies nothing, needs no Java."""
    with _reported(verbose):
        text = _read(script)
        from headrace.checking import explain_script

        shown = explain_script(text, pipeline=pipeline, rules=rules, json=json)
    print(shown)


@app.command(epilog="Example: headrace restore .headrace/savepoints/monday --state-dir /data/restored")
def restore(
    savepoint: Annotated[Path, typer.Argument(help="The directory that SAVEPOINT made.", show_default=False)],
    state_dir: Annotated[Path, typer.Option(help="The new state directory; it must not exist or be empty.")],
    rewind: Annotated[bool, typer.Option("--rewind", help="Remove what sinks hold from behind the savepoint.")] = False,
    verbose: Verbose = False,
) -> None:
    """Make a new state directory of a savepoint, here or on another machine. headrace run goes on from there."""
    with _reported(verbose):
        from headrace.restoring import restore as make

        facts = make(savepoint, state_dir, rewind)
    for cut in facts.cuts:
        print(f"stream {cut.stream} goes on behind epoch {cut.epoch}")


@app.command(epilog="Example: headrace repair readings --state-dir /data/state")
def repair(
    stream: Annotated[str, typer.Argument(help="The stream whose journal is damaged.", show_default=False)],
    state_dir: StateDir = Path(".headrace"),
    verbose: Verbose = False,
) -> None:
    """Leave out what cannot be read of a stream's journal (JOURNAL_DAMAGED), and say how much that is. Nothing else may
    use the state directory meanwhile."""
    with _reported(verbose):
        from headrace.repairing import repair_journal

        losses = repair_journal(state_dir, stream)
    for path, size in losses.items():
        gone = "nothing was left of it; how much had not been read is not known"
        print(f"{path}: {gone if Path(path).is_dir() else f'{size} bytes of records cannot be read'}")
    print(f"stream {stream}: {sum(losses.values())} bytes of records are left out" if losses else "nothing is damaged")


@app.command(epilog="Example: headrace demo --duration 60")
def demo(
    duration: Annotated[float, typer.Option(min=1, help="Seconds, counted from Spark's start.")] = 30,
    master: Master = None,
    verbose: Verbose = False,
) -> None:
    """Watch pipelines share one generated stream; leaves nothing behind. Ctrl-C ends it early."""
    with _reported(verbose):
        from headrace.demo.show import show

        show(duration, verbose=verbose, master=master)


@app.command(epilog="Example: headrace version")
def version() -> None:
    """Show the versions of headrace and of what it stands on."""
    print(f"headrace {metadata.version('headrace')}")
    print(f"python {sys.version.split()[0]}")
    for package in ("pyspark", "pyarrow", "duckdb", "sqlglot", "numba"):
        print(f"{package} {metadata.version(package)}")
    from headrace.java import find_java

    try:
        print(f"java {find_java()}")
    except MissingJava as problem:
        print(f"java none: {problem.advice}")


def _check(script: Path, text: str, state_dir: Path | None) -> None:
    from headrace.checking import check_script

    checked = check_script(text, state_dir)
    for warning in checked.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{script}: {len(checked.statements)} statements, {len(checked.pipelines)} pipelines, all right")


def _read(script: Path) -> str:
    if str(script) == "-":
        return sys.stdin.read()
    try:
        return script.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingFile(
            f"there is no file {script}", advice="Give the path of a script of SQL statements.", path=str(script)
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise UnreadableFile(
            f"{script} cannot be read: {problem}", advice="A script is a readable text file in UTF-8.", path=str(script)
        ) from None


@contextmanager
def _reported(verbose: bool) -> Iterator[None]:
    """Errors of ours as text with exit code 2; anything else as a short line with exit code 1."""
    try:
        yield
    except HubUnreachable as problem:
        print(problem.render(), file=sys.stderr)
        raise typer.Exit(3) from None
    except HeadraceError as problem:
        if verbose:
            traceback.print_exc()
        print(problem.render(), file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as problem:
        if verbose:
            traceback.print_exc()
        first = str(problem).strip().split("\n")[0]
        ours = InternalError(
            f"{type(problem).__name__}: {first}",
            advice="This should not happen. Run it again with --verbose and report what it shows.",
        )
        print(ours.render(), file=sys.stderr)
        raise typer.Exit(1) from None


def main() -> None:
    """The entry point of the `headrace` script."""
    if sys.argv[1:2] in (["check"], ["explain"]):
        plan_only()
    app()


if __name__ == "__main__":
    main()
