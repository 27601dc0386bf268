"""How a hub starts Spark: the master, and the settings that a user adds to ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.errors import BadOption

# Settings that have a place of their own, and where that is.
_ELSEWHERE = {
    "spark.master": "the master (--master, or master= in Python)",
    "spark.sql.session.timeZone": "the time zone (--time-zone, or time_zone= in Python)",
    "spark.submit.deployMode": "nothing else: the hub is the driver, and runs in this process",
}
# Settings without which the hub does not work, or gives other results.
_FIXED = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.execution.arrow.pyspark.enabled",
    "spark.python.daemon.module",
    "spark.python.worker.reuse",
)


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The options of an embedded session. `conf` are settings of Spark, `packages` Maven coordinates that Spark
    downloads, `ui` starts Spark's web page, `verbose` logs to standard error."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    ui: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        for key, value in self.conf.items():
            _require_allowed(key, value)
        for package in self.packages:
            if package.count(":") < 2 or not all(package.split(":")):
                raise BadOption(
                    f"{package!r} is not a Maven coordinate",
                    advice="Write group:artifact:version, for example org.apache.hadoop:hadoop-aws:3.4.2.",
                    option="packages",
                    value=package,
                )

    @property
    def is_default(self) -> bool:
        """True if a session of the user could not differ from these options."""
        return not (self.master or self.conf or self.packages or self.ui)

    def settings(self) -> dict[str, str]:
        """The settings that these options add."""
        found = dict(self.conf)
        if self.packages:
            named = [p for p in found.get("spark.jars.packages", "").split(",") if p]
            found["spark.jars.packages"] = ",".join([*named, *self.packages])
        if self.ui:
            found["spark.ui.enabled"] = "true"
        return found


def read_conf(texts: Iterable[str]) -> dict[str, str]:
    """The settings in `key=value` texts. Raises BadOption.

    >>> read_conf(["spark.executor.memory=4g", "spark.executor.extraJavaOptions=-Da=b"])
    {'spark.executor.memory': '4g', 'spark.executor.extraJavaOptions': '-Da=b'}
    """
    found: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise BadOption(
                f"--conf {text} has no key and value",
                advice="Write --conf key=value, for example --conf spark.executor.memory=4g.",
                option="conf",
                value=text,
            )
        found[key.strip()] = value.strip()
    return found


def read_packages(texts: Iterable[str]) -> tuple[str, ...]:
    """The coordinates in texts, which may be separated by commas, as in Spark.

    >>> read_packages(["a:b:1,c:d:2", "e:f:3"])
    ('a:b:1', 'c:d:2', 'e:f:3')
    """
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def _require_allowed(key: str, value: str) -> None:
    if key in _ELSEWHERE:
        advice = f"Leave it out; use {_ELSEWHERE[key]}."
    elif key in _FIXED:
        advice = "Leave it out: headrace needs its own value."
    elif not key.startswith("spark."):
        advice = "Settings of Spark begin with spark., as in spark.executor.memory."
    else:
        return
    raise BadOption(f"{key} = {value} cannot be set here", advice=advice, option="conf", value=key)
