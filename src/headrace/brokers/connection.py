"""Settings of Kafka's client library, and its errors as coded errors.

`KafkaConnection` is what the options `kafka.*` say. It can be pickled. The library is imported when a client is made,
because it is an extra: `pip install 'headrace[kafka]'`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from headrace.base.options import prefixed
from headrace.errors import (
    BadOption,
    BrokerDenied,
    BrokerFailed,
    BrokerUnreachable,
    HeadraceError,
    MissingOption,
    MissingPackage,
    UnknownTopic,
)

SERVERS = "bootstrap.servers"
SECRET = (
    r"password|passphrase|secret|token|key\.pem|oauthbearer\.config"  # client settings whose values are never shown
)
ANSWER_SECONDS = 10.0  # how long a request may take
# Settings that exactly-once delivery depends on.
_OURS = frozenset({
    "group.id", "auto.offset.reset", "enable.partition.eof", "enable.auto.commit", "transactional.id",
    "enable.idempotence",
})  # fmt: skip
_UNREACHABLE = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT"}
_DENIED = {
    "_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "UNSUPPORTED_SASL_MECHANISM",
}  # fmt: skip
_NO_TOPIC = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID", "_NOENT"}


def client_settings(help: str) -> Any:
    """Declares the options `kafka.*` of a source or sink."""
    return prefixed(help=help, hidden=SECRET)


def library() -> ModuleType:
    """The client library. Raises MissingPackage."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as problem:
        raise MissingPackage(
            f"Kafka needs the package confluent-kafka: {problem}",
            advice="Install it where headrace runs, and on all workers of a cluster: pip install 'headrace[kafka]'.",
            package="confluent-kafka",
        ) from None
    return confluent_kafka


@dataclass(slots=True)
class Noted:
    """The newest error that a client passed to its callback: its calls often only time out. Not thread-safe."""

    kind: str = ""
    text: str = ""

    def __call__(self, error: Any) -> None:
        if self.kind not in _DENIED:  # the client repeats "all brokers are down" after each refused login
            self.kind, self.text = error.name(), error.str()

    def clear(self) -> None:
        self.kind = self.text = ""


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """How to reach a cluster: the client's settings without the prefix `kafka.`."""

    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def servers(self) -> str:
        return self.settings.get(SERVERS, "")

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Equal for equal settings."""
        return tuple(sorted(self.settings.items()))

    def check(self, owner: str) -> None:
        """Raise what CREATE should reject before a broker is asked: no servers, settings that the client does not
        know."""
        if not self.servers:
            raise MissingOption(
                f"{owner} needs the option 'kafka.{SERVERS}'",
                advice=f"Write \"kafka.{SERVERS}\" = 'host:9092', with commas between several brokers.",
                option=f"kafka.{SERVERS}",
                owner=owner,
            )
        for name in _OURS & self.settings.keys():
            raise BadOption(
                f"{owner} sets kafka.{name} itself",
                advice="Remove it: exactly-once delivery depends on the value that headrace sets.",
                option=f"kafka.{name}",
            )
        self.admin()

    def admin(self, noted: Noted | None = None) -> Any:
        """A client for questions and topics."""
        return self._client(lambda lib: lib.admin.AdminClient, {}, noted or Noted())

    def consumer(self, settings: Mapping[str, object], noted: Noted) -> Any:
        """A consumer. `settings` are defaults: those of the user override them."""
        return self._client(lambda lib: lib.Consumer, settings, noted)

    def producer(self, settings: Mapping[str, object], noted: Noted) -> Any:
        """A producer. `settings` are defaults: those of the user override them."""
        return self._client(lambda lib: lib.Producer, settings, noted)

    def _client(self, kind: Callable[[Any], Any], settings: Mapping[str, object], noted: Noted) -> Any:
        lib = library()
        quiet = {"log_level": 0, "client.id": "headrace"}  # no log: errors are raised, with a code
        try:
            return kind(lib)({**quiet, **settings, **self.settings, "error_cb": noted})
        except (lib.KafkaException, ValueError, TypeError) as problem:
            said = _text_of(problem)
            named = re.search(r'"([\w.]+)"', said)
            raise BadOption(
                f"Kafka's client rejects its settings: {said}",
                advice="kafka.* are the settings of librdkafka, such as kafka.security.protocol, kafka.sasl.mechanism, "
                "kafka.sasl.username and kafka.ssl.ca.location. Settings of the Java client have other names there.",
                option=f"kafka.{named[1]}" if named else "kafka",
            ) from None

    @contextmanager
    def asking(
        self, what: str, noted: Noted | None = None, poll: Callable[[float], Any] | None = None
    ) -> Iterator[None]:
        """Turn the client's errors into coded ones. `what` completes "cannot ...". `poll` serves the callback that
        fills `noted`."""
        lib = library()
        try:
            yield
        except lib.KafkaException as problem:
            if poll is not None:
                poll(0)
            raise self.coded(problem.args[0], what, noted) from None

    def coded(self, error: Any, what: str, noted: Noted | None = None) -> HeadraceError:
        """The coded error for an error of the client."""
        kind, said = error.name(), error.str()
        if noted is not None and noted.kind and kind in _UNREACHABLE:
            said = noted.text
            kind = noted.kind if noted.kind in _DENIED else kind
        message = f"cannot {what} at {self.servers}: {said}"
        if kind in _DENIED:
            return BrokerDenied(
                message,
                advice="Check kafka.security.protocol, kafka.sasl.*, kafka.ssl.* and the permissions of this user.",
                servers=self.servers,
                reason=kind,
            )
        if kind in _UNREACHABLE:
            return BrokerUnreachable(
                message,
                advice=f"Check that the broker runs, and kafka.{SERVERS}. A running stream tries again by itself.",
                servers=self.servers,
                reason=kind,
            )
        if kind in _NO_TOPIC:
            return UnknownTopic(message, advice="Create the topic, or correct its name.", servers=self.servers)
        return BrokerFailed(
            message, advice="A running stream tries again by itself.", servers=self.servers, reason=kind
        )


def reason_of(problem: HeadraceError) -> str:
    """The client's own name of the error."""
    return str(problem.params.get("reason", ""))


def _text_of(problem: Exception) -> str:
    first = problem.args[0] if problem.args else problem
    return str(first.str() if hasattr(first, "str") else first)
