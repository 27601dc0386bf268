"""`headrace serve`: a hub that stays up and takes its statements over HTTP and its socket."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from headrace.checking import check_script
from headrace.errors import UnreadableFile
from headrace.hub import open_hub
from headrace.interrupts import Interrupts
from headrace.logs import LogFormat, facts, logging_to
from headrace.running import report_closing, report_wait, teller
from headrace.service.guard import Access
from headrace.service.server import HubServer


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, and for whom."""

    host: str
    port: int
    access: Access

    @staticmethod
    def settle(
        host: str, port: int, token_file: Path | None, read_token_file: Path | None, hosts: tuple[str, ...]
    ) -> Address:
        """Reads tokens from files, or else from the environment: a command line is visible to every user."""
        return Address(
            host,
            port,
            Access(
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
            f"{file} cannot be read: {problem}", advice="Give a readable file with the token in it.", path=str(file)
        ) from None
    if not found:
        raise UnreadableFile(f"{file} is empty", advice="Write the token into it.", path=str(file))
    return found


_log = logging.getLogger(__name__)


def serve_hub(
    text: str | None,
    address: Address,
    *,
    state_dir: Path,
    master: str | None,
    verbose: bool,
    stop_limit: float,
    log_format: LogFormat = "text",
    log_level: int = logging.INFO,
) -> None:
    """Run `text` if there is any, then serve until Ctrl-C or SIGTERM. Epochs in flight have `stop_limit` seconds."""
    if text is not None:
        check_script(text, state_dir)
    with (
        Interrupts() as interrupts,
        logging_to(log_format, log_level, timed=True) as logs,
        open_hub(state_dir, master=master, verbose=verbose) as hub,
    ):
        logs.keep(hub.directory)
        tell = teller(logs)
        server = HubServer(hub, hub.directory, address.access, (address.host, address.port))
        hub.on_close(server.close)
        print(f"serving {state_dir} on {server.address}", flush=True)
        _log.info("serving %s on %s", state_dir, server.address, extra=facts("serving", address=server.address))
        interrupts.install()  # pipelines that continue have started Spark, which has taken SIGINT
        if text is not None:
            try:
                results = hub.sql(text)
            finally:
                interrupts.install()
            for result in results:
                print(result.render(), flush=True)
        while not interrupts.asked.wait(1.0):
            interrupts.install()  # a statement of a client may have started Spark
        _log.info("stopping: epochs in flight have %g s to finish", stop_limit, extra=facts("stopping"))
        hub.drain(stop_limit, lambda waited: report_wait(waited, tell))
        report_closing(hub, tell)
