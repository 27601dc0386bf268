"""Replaces tokens and passwords in declarations by the names of secrets; see `headrace.state.secrets`."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from pathlib import Path

from headrace.errors import DiskFull, StateDamaged, StateTooNew, StateUnavailable
from headrace.model.definitions import SinkDef, StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.stored import store, stored
from headrace.sinks.secret_options import secret_options
from headrace.sql import CreateSink, CreateStream, parse_script
from headrace.state.catalog import CATALOG_VERSION, Catalog, CatalogFile
from headrace.state.secrets import Vault, secrets_of
from headrace.state.state_dir import SAVEPOINTS, stream_directory

HIDDEN = "***"
_log = logging.getLogger(__name__)


def seal_stream(stream: StreamDef, vault: Vault) -> StreamDef:
    """`stream` as it is stored: its options name secrets, and its SQL text hides them. The values go to `vault`."""
    secret = secrets_of(stream)
    if not secret:
        return stream
    options = {name: vault.seal(value) if name in secret else value for name, value in stream.options.items()}
    return replace(stream, options=options, sql=_hidden(stream.sql, {name.lower() for name in secret}))


def seal_sink(sink: SinkDef, vault: Vault) -> SinkDef:
    """`sink` as it is stored: its options name secrets, and its SQL text hides them. The values go to `vault`."""
    secret = secret_options(sink)
    if not secret:
        return sink
    options = {name: vault.seal(value) if name in secret else value for name, value in sink.options.items()}
    return replace(sink, options=options, sql=_hidden(sink.sql, {name.lower() for name in secret}))


def supply(declared: StreamDef, sealed: StreamDef, vault: Vault) -> StreamDef:
    """Recover lost secrets of `declared` from `sealed`, a new declaration of the same stream. Returns `sealed` with the
    old names of these secrets; `vault` gets their new values."""
    secret = secrets_of(declared) & secrets_of(sealed)
    return replace(sealed, options=_supplied(declared.options, sealed.options, secret, vault))


def supply_sink(declared: SinkDef, sealed: SinkDef, vault: Vault) -> SinkDef:
    """Recover lost secrets of a sink, as `supply` does for a stream."""
    if declared.kind != sealed.kind:
        return sealed
    secret = secret_options(declared) & secret_options(sealed)
    return replace(sealed, options=_supplied(declared.options, sealed.options, secret, vault))


def _supplied(declared: dict[str, str], sealed: dict[str, str], secret: set[str], vault: Vault) -> dict[str, str]:
    options = dict(sealed)
    for name in secret:
        old = declared[name]
        if not vault.knows(old):
            vault.learn(old, vault.reveal(sealed[name]))
            options[name] = old
    return options


def seal_directory(root: Path) -> CatalogFile:
    """The catalog of a state directory, or of a savepoint, without secrets. Earlier versions stored them in the catalog
    and in the plans: they are taken out of there, on the disk too."""
    file = CatalogFile(root)
    catalog = file.read()
    if catalog.version != CATALOG_VERSION:
        for name in catalog.streams:
            for plan in (stream_directory(root, name) / "plans").glob("*.json"):
                _seal_plan(plan, file.vault)
        for _ in range(2):  # the second time for the copy of the previous catalog
            file.save(sealed(catalog, file.vault))
    return file


def read_sealed(root: Path) -> tuple[Catalog, Vault]:
    """The catalog of a state directory without secrets, and its secrets. Only reads the disk."""
    file = CatalogFile(root)
    return sealed(file.read(), file.vault), file.vault


def seal_savepoints(state_dir: Path) -> None:
    """Remove secrets from the catalogs and plans of savepoints of earlier versions."""
    for savepoint in (state_dir / SAVEPOINTS).glob("[!.]*"):
        try:
            if (savepoint / "catalog.json").exists():
                seal_directory(savepoint)
        except (StateDamaged, DiskFull, StateUnavailable) as problem:  # the hub opens anyway
            _log.warning("tokens in savepoint %s, if any, stay readable there: %s", savepoint, problem.message)


def sealed(catalog: Catalog, vault: Vault) -> Catalog:
    """A catalog as the current version stores it."""
    if catalog.version == CATALOG_VERSION:
        return catalog
    streams = {name: seal_stream(stream, vault) for name, stream in catalog.streams.items()}
    return replace(catalog, version=CATALOG_VERSION, streams=streams)


def _seal_plan(path: Path, vault: Vault) -> None:
    with contextlib.suppress(StateDamaged, StateTooNew):  # the reader of this plan reports the damage
        plan = stored(PlanVersion, path)
        if plan is not None and secrets_of(plan.stream):
            store(path, replace(plan, stream=seal_stream(plan.stream, vault)))


def _hidden(sql: str, secret: set[str]) -> str:
    """The text of a CREATE statement with its secrets hidden: its readers may not be allowed to use them."""
    statement = parse_script(sql)[0] if sql else None
    if isinstance(statement, CreateStream | CreateSink):
        found = [(span, name) for name, span in statement.spans.items() if name.lower() in secret]
        for span, name in sorted(found, key=lambda place: -place[0].start):
            sql = f"{sql[: span.start]}{name} = '{HIDDEN}'{sql[span.end :]}"
    return sql
