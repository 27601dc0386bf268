"""Write docs/api.md, the Python API, from the docstrings: `python scripts/api_page.py`."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import headrace
import headrace.errors
import headrace.hub.results
import headrace.model.status
import headrace.service.client

TARGET = Path(__file__).parents[1] / "docs" / "api.md"
# The objects that users get besides those in `headrace.__all__`: what its methods return and raise.
RETURNED: tuple[type, ...] = (
    headrace.hub.results.Result,
    headrace.service.client.RemoteStream,
    headrace.service.client.RemotePipeline,
    headrace.model.status.StreamTotals,
    headrace.model.status.SinkTotals,
    headrace.model.status.StateChange,
    headrace.model.status.Gap,
    headrace.model.status.Traffic,
    headrace.errors.HeadraceError,
)
ORDER = ("connect", "Hub", "Stream", "Pipeline", "StreamStatus", "PipelineStatus", "RemoteHub")
HEAD = """# Python API

This page is made from the docstrings: `python scripts/api_page.py`. Types are in the package (it has a `py.typed`), so
editors and mypy know them. Every example on this page runs as a test, on a hub with the streams and pipelines that
`headrace init` writes, and this addition:

```sql
{more}
```

`hub` is that hub, and `remote` is a client of it. Names that are not on this page may change in any version: see
[versions.md](versions.md#versioning-and-deprecation).

{contents}
"""
# The examples in tests/examples.py have the same.
MORE = """CREATE SINK kept WITH (type = 'memory');
CREATE PIPELINE warm INTO kept AS SELECT device, temp FROM sensors WHERE temp > 25;"""


def public() -> dict[str, object]:
    """Every public object by its name on the page, in order."""
    assert {*ORDER, "__version__"} == set(headrace.__all__)
    return {name: getattr(headrace, name) for name in ORDER} | {kind.__name__: kind for kind in RETURNED}


def members(kind: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a class and of ours that it inherits from, in the order of the source."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("headrace.")]
    found = {name: member for base in reversed(ours) for name, member in vars(base).items()}
    for name in dict.fromkeys(name for base in ours for name in vars(base)):
        member = found[name]
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def documented() -> Iterator[tuple[str, object]]:
    """Every public object, and after a class its members, with the names that the page has for them."""
    for name, thing in public().items():
        yield name, thing
        if isinstance(thing, type):
            yield from ((f"{name}.{member}", found) for member, found in members(thing))


def render() -> str:
    """The page."""
    contents = ", ".join(f"[`{name}`](#{_anchor(name)})" for name in public())
    parts = [HEAD.format(more=MORE, contents=contents)]
    for name, thing in documented():
        member = "." in name
        parts.append(f"{'###' if member else '##'} {name}\n")
        if (signature := _signature(name, thing)) is not None:
            parts.append(f"```python\n{signature}\n```\n")
        parts.append(_prose(inspect.getdoc(thing) or ""))
    return "\n".join(parts).rstrip() + "\n"


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "", name.lower())


def _signature(name: str, thing: object) -> str | None:
    if isinstance(thing, property):
        kind = inspect.signature(thing.fget).return_annotation if thing.fget else ""
        return f"{name}: {kind}"
    if isinstance(thing, type):
        # Users make none of these themselves. Those with fields show them.
        fields = getattr(thing, "__dataclass_fields__", {})
        return "\n".join(f"{field}: {found.type}" for field, found in fields.items()) or None
    assert callable(thing)
    signature = inspect.signature(thing)
    arguments = list(_arguments([p for p in signature.parameters.values() if p.name != "self"]))
    line = f"{name}({', '.join(arguments)}) -> {signature.return_annotation}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in arguments) + f") -> {signature.return_annotation}"


def _arguments(parameters: list[inspect.Parameter]) -> Iterator[str]:
    star = False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
        yield f"{parameter.name}: {parameter.annotation}{default}"


def _prose(text: str) -> str:
    """A docstring as Markdown: its examples become code blocks."""
    parts = []
    for part in re.split(r"\n\n", text):
        lines = part.split("\n")
        example = next((i for i, line in enumerate(lines) if line.startswith(">>> ")), None)
        if example is None:
            parts.append(re.sub(r"docs/(\w+\.md)", r"[\1](\1)", part))
            continue
        if example:
            parts.append("\n".join(lines[:example]))
        parts.append("```pycon\n" + textwrap.dedent("\n".join(lines[example:])) + "\n```")
    # A list needs an empty line before it.
    return re.sub(r"(?m)^(?!- )(.+)\n(?=- )", _before_list, "\n\n".join(parts)) + "\n"


def _before_list(found: re.Match[str]) -> str:
    return found[0] if found[1].startswith(" ") else f"{found[1]}\n\n"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
