"""The options that several commands of `headrace` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

ScriptArgument = Annotated[
    Path, typer.Argument(help="A script of SQL statements; - reads standard input.", show_default=False)
]
StateDirOption = Annotated[Path, typer.Option(help="Directory that holds streams, pipelines and progress.")]
MasterOption = Annotated[
    str | None, typer.Option(help="Spark master: local[4], spark://host:7077, ... (default local[*]).")
]
TimeZoneOption = Annotated[
    str | None, typer.Option(help="Session time zone: Europe/Berlin, ... (default: that of the pipelines, or UTC).")
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
]
PackagesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--packages", metavar="PACKAGES", help="Maven packages that Spark downloads: group:artifact:version,..."
    ),
]
UiOption = Annotated[bool, typer.Option("--ui", help="Start Spark's web page, and print its address.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's log, and stack traces of errors.")]
StopLimitOption = Annotated[
    float, typer.Option(min=0, help="Seconds that running epochs get to finish on Ctrl-C or SIGTERM.")
]
ServerOption = Annotated[
    str | None,
    typer.Option(help="URL of a hub (default: the owner of the state directory). HEADRACE_TOKEN holds its token."),
]
FormatOption = Annotated[Literal["table", "json", "csv"], typer.Option(help="Format of the results.")]
LogFormatOption = Annotated[
    Literal["text", "json"], typer.Option(help="Format of log lines, on standard error and in the state directory.")
]
LogLevelOption = Annotated[
    Literal["info", "warning", "error"],
    typer.Option(help="Lowest level that is logged on standard error; info logs every epoch."),
]
TokenFileOption = Annotated[
    Path | None, typer.Option(help="File with the token that clients must send (or set HEADRACE_TOKEN).")
]
ReadTokenFileOption = Annotated[
    Path | None, typer.Option(help="File with a token that may only read (or set HEADRACE_READ_TOKEN).")
]
AllowHostOption = Annotated[
    list[str] | None, typer.Option(help="A host name that clients use for this hub; may be repeated.")
]
