"""The `headrace` command.

A user's mistake is printed on standard error with its code, message and advice, and the exit code is 2. A pipeline that
fails while it runs gives exit code 1. `--verbose` adds stack traces. Commands import Spark only when they need it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headrace.app.cli_options import (
    AllowHostOption,
    ConfOption,
    FormatOption,
    LogFormatOption,
    LogLevelOption,
    MasterOption,
    PackagesOption,
    ReadTokenFileOption,
    ScriptArgument,
    ServerOption,
    StateDirOption,
    StopLimitOption,
    TimeZoneOption,
    TokenFileOption,
    UiOption,
    VerboseOption,
)
from headrace.app.entry import quick
from headrace.app.reporting import report
from headrace.errors import MissingFile, MissingJava
from headrace.model.spark_options import SparkOptions, read_conf, read_packages

app = typer.Typer(
    name="headrace",
    help="SQL pipelines that share one raw stream on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(epilog="Examples: headrace run app.sql; headrace run app.sql --until-end --state-dir /data/state")
def run(
    script: ScriptArgument,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop when all finite sources are read to their end.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only plan the script against the state directory. Changes nothing.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only failures, the closing totals, and answers to questions.")
    ] = False,
    stop_limit: StopLimitOption = 60,
    state_dir: StateDirOption = Path(".headrace"),
    master: MasterOption = None,
    conf: ConfOption = None,
    packages: PackagesOption = None,
    ui: UiOption = False,
    time_zone: TimeZoneOption = None,
    log_format: LogFormatOption = "text",
    verbose: VerboseOption = False,
) -> None:
    """Run a script of statements, until Ctrl-C or SIGTERM.

    The command then finishes the running epochs, prints what it waited for, and exits with code 0. A second Ctrl-C
    quits at once. To continue where it stopped, run the same script with the same state directory again.
    """
    with _reported(verbose):
        spark = _spark_options(master=master, conf=conf, packages=packages, ui=ui, verbose=verbose)
        _require_reachable(None if check else master)
        from headrace.app.checking import CheckArguments, check_command, read_script

        if check:
            raise typer.Exit(check_command(CheckArguments(script, strict=True, verbose=verbose), state_dir, time_zone))
        text = read_script(script)
        from headrace.app.run import RunSettings, run_script

        code = run_script(
            text,
            RunSettings(
                state_dir=state_dir,
                until_end=until_end,
                stop_limit=stop_limit,
                spark=spark,
                time_zone=time_zone,
                log_format=log_format,
                quiet=quiet,
            ),
        )
    raise typer.Exit(code)


@app.command(epilog="Examples: headrace serve; headrace serve app.sql --port 8642 --token-file /etc/headrace/token")
def serve(
    script: Annotated[
        Path | None, typer.Argument(help="A script to run first; - reads standard input.", show_default=False)
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any address but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8642,
    token_file: TokenFileOption = None,
    read_token_file: ReadTokenFileOption = None,
    allow_host: AllowHostOption = None,
    stop_limit: StopLimitOption = 60,
    state_dir: StateDirOption = Path(".headrace"),
    master: MasterOption = None,
    conf: ConfOption = None,
    packages: PackagesOption = None,
    ui: UiOption = False,
    time_zone: TimeZoneOption = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
    verbose: VerboseOption = False,
) -> None:
    """Serve a hub over HTTP, until Ctrl-C or SIGTERM. Add and stop pipelines by REST, browser or `headrace sql`.

    Like every hub, it also listens on a Unix socket in its state directory.
    """
    with _reported(verbose):
        spark = _spark_options(master=master, conf=conf, packages=packages, ui=ui, verbose=verbose)
        _require_reachable(master)
        from headrace.app.checking import read_script

        text = None if script is None else read_script(script)
        from headrace.app.serve import Endpoint, serve_hub

        endpoint = Endpoint.of_options(
            host=host, port=port, token_file=token_file, read_token_file=read_token_file, hosts=tuple(allow_host or ())
        )
        serve_hub(
            text,
            endpoint,
            state_dir=state_dir,
            spark=spark,
            stop_limit=stop_limit,
            log_format=log_format,
            log_level=getattr(logging, log_level.upper()),
            time_zone=time_zone,
        )


@app.command(epilog="Examples: headrace sql; headrace sql -c 'SHOW PIPELINES' --format json; headrace sql -f more.sql")
def sql(
    command: Annotated[str | None, typer.Option("--command", "-c", help="Run these statements and exit.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Run this script and exit; - reads standard input.")
    ] = None,
    server: ServerOption = None,
    format: FormatOption = "table",
    state_dir: StateDirOption = Path(".headrace"),
    verbose: VerboseOption = False,
) -> None:
    """Send statements to a running hub. Without -c or -f, opens a prompt; \\? lists its commands.

    The hub is the owner of the state directory, or the one at --server. If no process owns the directory, statements
    that only read are answered from its files. The exit code is 2 if a statement fails, 3 if no hub answers.
    """
    with _reported(verbose):
        from headrace.app.checking import read_script
        from headrace.service.sql_command import statements

        text = command if command is not None else None if file is None else read_script(file)
        code = statements(text, server, state_dir, format)
    raise typer.Exit(code)


@app.command(epilog="Examples: headrace status; headrace status --server http://127.0.0.1:8642 --format json")
def status(
    server: ServerOption = None,
    format: FormatOption = "table",
    state_dir: StateDirOption = Path(".headrace"),
    verbose: VerboseOption = False,
) -> None:
    """Show streams and pipelines of a running hub, or of a state directory that no process owns."""
    with _reported(verbose):
        from headrace.service.sql_command import statements

        code = statements("SHOW STREAMS; SHOW PIPELINES", server, state_dir, format)
    raise typer.Exit(code)


@app.command(epilog="Example: headrace top --state-dir /data/state")
def top(
    server: ServerOption = None, state_dir: StateDirOption = Path(".headrace"), verbose: VerboseOption = False
) -> None:
    """Watch the streams and pipelines of a running hub, until Ctrl-C."""
    with _reported(verbose):
        from headrace.app.top import watch

        watch(server, state_dir)


@app.command(epilog="Examples: headrace logs -n 200; headrace logs --state-dir /data/state")
def logs(
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines to show.")] = 50,
    state_dir: StateDirOption = Path(".headrace"),
    verbose: VerboseOption = False,
) -> None:
    """Show the newest log lines of a state directory, even after a crash, and list its log files."""
    with _reported(verbose):
        from headrace.base.logs import FILES, last_lines

        if not state_dir.is_dir():
            raise MissingFile(f"there is no directory {state_dir}", advice="Name one with --state-dir.")
        found = last_lines(state_dir, lines)
        for line in found:
            print(line)
        for name, what in FILES.items():
            if (state_dir / name).exists():
                print(f"{state_dir / name}: {what}", file=sys.stderr)


@app.command(epilog="Examples: headrace check app.sql; headrace check app.sql --strict; headrace check - --json")
def check(
    script: ScriptArgument,
    strict: Annotated[bool, typer.Option("--strict", help="Paths that are missing here are errors.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as one JSON object, for editors.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Plan every statement of a script and report its errors. Changes nothing, needs no Java and no data."""
    with _reported(verbose):
        from headrace.app.checking import CheckArguments, check_command

        code = check_command(CheckArguments(script, strict, json, verbose))
    raise typer.Exit(code)


@app.command(epilog="Examples: headrace fmt app.sql; headrace fmt --check *.sql; headrace fmt - < app.sql")
def fmt(
    scripts: Annotated[list[Path], typer.Argument(help="Scripts to format; - formats standard input.")],
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with code 1 if a script is not formatted.")
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Format scripts in place: keywords in capitals, one clause per line. Comments are kept."""
    with _reported(verbose):
        from headrace.app.formatting import format_scripts

        code = format_scripts(scripts, check)
    raise typer.Exit(code)


@app.command(epilog="Examples: headrace explain app.sql; headrace explain app.sql --pipeline hot --json")
def explain(
    script: ScriptArgument,
    pipeline: Annotated[str | None, typer.Option(help="Only this pipeline.")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Also show what each planner rule changed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Show the plan of every pipeline and SELECT of a script. Changes nothing, needs no Java."""
    with _reported(verbose):
        from headrace.app.check import explain_script
        from headrace.app.checking import read_script

        text = read_script(script)

        shown = explain_script(text, pipeline=pipeline, rules=rules, json=json)
    print(shown)


@app.command(epilog="Example: headrace restore .headrace/savepoints/monday --state-dir /data/restored")
def restore(
    savepoint: Annotated[Path, typer.Argument(help="The directory that SAVEPOINT created.", show_default=False)],
    state_dir: Annotated[Path, typer.Option(help="The new state directory; it must not exist or be empty.")],
    rewind: Annotated[bool, typer.Option("--rewind", help="Delete sink output written after the savepoint.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Make a new state directory from a savepoint, on this or another machine. headrace run continues from there."""
    with _reported(verbose):
        from headrace.state.restore import restore as restore_savepoint

        facts = restore_savepoint(savepoint, state_dir, rewind)
    for cut in facts.cuts:
        print(f"stream {cut.stream} continues after epoch {cut.epoch}")


@app.command(epilog="Example: headrace repair readings --state-dir /data/state")
def repair(
    stream: Annotated[str, typer.Argument(help="The stream whose journal is damaged.", show_default=False)],
    state_dir: StateDirOption = Path(".headrace"),
    verbose: VerboseOption = False,
) -> None:
    """Remove the unreadable parts of a stream's journal (JOURNAL_DAMAGED), and print how many bytes are lost.

    No hub may run on the state directory meanwhile.
    """
    with _reported(verbose):
        from headrace.state.journal_repair import repair_journal

        losses = repair_journal(state_dir, stream)
    for path, size in losses.items():
        gone = "the journal is gone; how many of its bytes had not been read is not known"
        print(f"{path}: {gone if Path(path).is_dir() else f'{size} bytes of records cannot be read'}")
    print(f"stream {stream}: {sum(losses.values())} bytes of records are lost" if losses else "nothing is damaged")


@app.command(epilog="Example: headrace demo --duration 60")
def demo(
    duration: Annotated[float, typer.Option(min=1, help="How many seconds to run, counted from Spark's start.")] = 30,
    master: MasterOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Watch pipelines share one generated stream. Deletes its files at the end. Ctrl-C ends it early."""
    with _reported(verbose):
        _require_reachable(master)
        from headrace.app.demo.show import show

        show(duration, verbose=verbose, master=master)


@app.command(epilog="Example: headrace init my-project")
def init(
    directory: Annotated[Path, typer.Argument(help="Where to write it.", show_default=False)] = Path("."),
    verbose: VerboseOption = False,
) -> None:
    """Write a commented example script, app.sql, with data for it."""
    with _reported(verbose):
        from headrace.app.init import write_example

        for path in write_example(directory):
            print(f"wrote {path}")
    place = "" if directory == Path(".") else f"cd {directory} && "
    print(f"next: {place}headrace run app.sql --until-end")


@app.command(epilog="Example: headrace doctor --state-dir /data/state")
def doctor(
    state_dir: StateDirOption = Path(".headrace"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port for headrace serve.")] = 8642,
    verbose: VerboseOption = False,
) -> None:
    """Check Java, the Python of the workers, versions, disk and port, and say what to do. Exit code 1: a problem."""
    with _reported(verbose):
        from headrace.app.doctor import Diagnosis, diagnose, exit_code

        found: list[Diagnosis] = []
        for diagnosis in diagnose(state_dir, port):
            print(diagnosis.render(), flush=True)
            found.append(diagnosis)
        code = exit_code(found)
    raise typer.Exit(code)


@app.command(epilog="Example: headrace version")
def version() -> None:
    """Show the versions of headrace and of its main dependencies."""
    from importlib import metadata

    print(f"headrace {metadata.version('headrace')}")
    print(f"python {sys.version.split()[0]}")
    for package in ("pyspark", "pyarrow", "duckdb", "sqlglot", "numba"):
        print(f"{package} {metadata.version(package)}")
    from headrace.spark.java import find_java

    try:
        print(f"java {find_java()}")
    except MissingJava as problem:
        print(f"java none: {problem.advice}")


def _spark_options(
    master: str | None, conf: list[str] | None, packages: list[str] | None, ui: bool, verbose: bool
) -> SparkOptions:
    return SparkOptions(
        master=master, conf=read_conf(conf or ()), packages=read_packages(packages or ()), ui=ui, verbose=verbose
    )


def _require_reachable(master: str | None) -> None:
    """Ask the master before anything else is loaded: on a busy machine, loading may take longer than the question."""
    if master is not None:
        from headrace.spark.reachable import require_reachable

        require_reachable(master)


@contextmanager
def _reported(verbose: bool) -> Iterator[None]:
    """Print the error of a command and exit with its code (`headrace.app.reporting`)."""
    try:
        yield
    except typer.Exit:
        raise
    except (Exception, KeyboardInterrupt) as problem:
        raise typer.Exit(report(problem, verbose)) from None


def main() -> None:
    """Run the command line in a process that has imported this module already."""
    quick()
    app()


if __name__ == "__main__":
    main()
