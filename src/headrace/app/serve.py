"""`headrace serve`: a hub that runs until it is stopped, and takes statements over HTTP and its Unix socket."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from headrace.app.attending import attended
from headrace.app.check import check_script
from headrace.app.interrupts import Interrupts
from headrace.app.run import closing_lines, message_printer, report_wait
from headrace.base.logs import LogFormat, facts, logging_to
from headrace.errors import UnreadableFile
from headrace.hub.hub import Hub, open_hub
from headrace.model.spark_options import SparkOptions
from headrace.service.guard import AccessPolicy
from headrace.service.server import HubServer


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The TCP address to listen on, and who may use it."""

    host: str
    port: int
    access: AccessPolicy

    @staticmethod
    def of_options(
        *, host: str, port: int, token_file: Path | None, read_token_file: Path | None, hosts: tuple[str, ...]
    ) -> Endpoint:
        """Read the tokens from files or the environment. There is no option for a token itself, because all users of
        the machine can see command lines."""
        return Endpoint(
            host,
            port,
            AccessPolicy(
                hosts=(*hosts, host),
                token=_token(token_file, "HEADRACE_TOKEN"),
                read_only_token=_token(read_token_file, "HEADRACE_READ_TOKEN"),
            ),
        )


def _token(file: Path | None, variable: str) -> str | None:
    if file is None:
        return os.environ.get(variable) or None
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UnreadableFile(
            f"{file} cannot be read: {problem}",
            advice="Give the path of a readable text file that holds the token.",
            path=str(file),
        ) from None
    if not found:
        raise UnreadableFile(f"{file} is empty", advice="Write the token into it.", path=str(file))
    return found


_log = logging.getLogger(__name__)
_PRINTED = frozenset({"serving"})  # on standard output, for the user and for programs that start the hub


def _server(hub: Hub, endpoint: Endpoint, startup: str) -> HubServer:
    """The server of a hub. The hub closes it."""
    bind = (endpoint.host, endpoint.port)
    server = HubServer(hub=hub, directory=hub.directory, access=endpoint.access, bind=bind, startup=startup)
    hub.on_close(server.close)
    return server


def serve_hub(
    text: str | None,
    endpoint: Endpoint,
    *,
    state_dir: Path,
    spark: SparkOptions,
    stop_limit: float,
    log_format: LogFormat = "text",
    log_level: int = logging.INFO,
    time_zone: str | None = None,
) -> None:
    """Run `text` if it is given, then serve until Ctrl-C or SIGTERM. Running epochs then have `stop_limit` seconds to
    finish."""
    if text is not None:
        check_script(text, state_dir, time_zone)
    with (
        Interrupts() as interrupts,
        logging_to(log_format, log_level, timed=True, hidden=_PRINTED) as logs,
        attended(lambda: open_hub(state_dir, options=spark, time_zone=time_zone)) as hub,
    ):
        logs.keep(hub.directory)
        say = message_printer(logs)
        server = _server(hub, endpoint, "the script is not applied yet" if text is not None else "")
        print(f"serving {state_dir} on {server.address}", flush=True)
        _log.info("serving %s on %s", state_dir, server.address, extra=facts("serving", address=server.address))
        if text is not None and not interrupts.asked.is_set():
            for result in attended(lambda: hub.sql(text)):
                print(result.render(), flush=True)
            server.startup = ""
        interrupts.asked.wait()
        server.startup = "the hub is stopping"
        _log.info("stopping: running epochs have %g s to finish", stop_limit, extra=facts("stopping"))
        attended(lambda: hub.drain(stop_limit, lambda waited: report_wait(waited, say)))
        for line in closing_lines(hub, logs.warned):
            say(line)
