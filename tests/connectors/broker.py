"""An Apache Kafka broker for tests and benchmarks: one KRaft node on loopback, from Maven's packages.

The packages of `pom.xml` are copied once into headrace's cache directory. A broker takes
free ports, keeps its log in a directory of the caller, and can be stopped, killed and started again on the same ports.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.base.cache import cache_directory
from headrace.errors import MissingJava
from headrace.spark.java import find_java

POM = Path(__file__).with_name("pom.xml")
USER, PASSWORD = "engine", "the-password-of-the-tests"
STARTS_WITHIN = 90.0  # seconds; an idle machine needs 4
_HEAP = ("-Xms64m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LARGEST_MESSAGE = 24 << 20


class BrokerMissing(Exception):
    """Why there can be no broker on this machine."""


def packages(pom: Path = POM) -> Path:
    """The directory with the jars of `pom`. They are copied there at the first call, which needs Maven."""
    home = cache_directory(os.environ)
    content = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    target = home / "maven" / f"{pom.parent.name}-{content}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not target.is_dir():
            _copy(pom, target)
    return target


def _copy(pom: Path, target: Path) -> None:
    if shutil.which("mvn") is None:
        raise BrokerMissing("mvn is not installed (Debian: apt-get install maven)")
    half = target.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={half}"]
    done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().split("\n")[0]
        raise BrokerMissing(f"mvn cannot get the packages of {pom.name}: {said}")
    half.rename(target)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Broker:
    """A broker whose files are in `directory`. `address` needs no password, `guarded` needs USER and PASSWORD. With
    `joins`, the address of a broker's `controller`, it is the second node of that broker's cluster.
    Raises BrokerMissing if Java or the packages cannot be had."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None, joins: str | None = None) -> None:
        try:
            self._java = str(find_java() / "bin" / "java")
        except MissingJava as problem:
            raise BrokerMissing(problem.message) from problem
        self._jars = packages()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        plain, guarded, controller = free_ports(3)
        self.address, self.guarded = f"127.0.0.1:{plain}", f"127.0.0.1:{guarded}"
        self.controller = joins or f"127.0.0.1:{controller}"
        chosen = _properties(directory, plain, guarded, self.controller)
        if joins is not None:
            chosen |= {"node.id": 2, "process.roles": "broker", "listeners": _listeners(plain, guarded)}
        directory.mkdir(parents=True, exist_ok=True)
        self._config = directory / "server.properties"
        self._config.write_text("\n".join(f"{name}={value}" for name, value in (chosen | dict(settings or {})).items()))

    def start(self) -> Broker:
        """Start it, with the messages that it has. Returns when clients can connect."""
        log = self._directory / "broker.log"
        if not (self._directory / "data" / "meta.properties").exists():
            tool = ["kafka.tools.StorageTool", "format", "-t", "aGVhZHJhY2UtdGVzdHMtMQ", "-c", str(self._config)]
            with log.open("ab") as out:
                subprocess.run(self._command(*tool), check=True, stdout=out, stderr=subprocess.STDOUT)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._config)), stdout=out, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + STARTS_WITHIN
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not start: {log.read_text()[-2000:]}")
        return self

    def stop(self) -> None:
        """Stop it in order. Does nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it and start it again, on the same ports and with its messages."""
        self.kill()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _command(self, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={POM.with_name('log4j2.properties')}"
        return [self._java, *_HEAP, logging, "-cp", f"{self._jars}/*", *arguments]

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        quiet: Any = {"bootstrap.servers": self.address, "log_level": 0}
        try:
            return bool(AdminClient(quiet).list_topics(timeout=1).brokers)
        except KafkaException:
            return False


def _listeners(plain: int, guarded: int) -> str:
    return f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{guarded}"


def _properties(directory: Path, plain: int, guarded: int, controller: str) -> dict[str, object]:
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"{_listeners(plain, guarded)},CONTROLLER://{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "log.dirs": directory / "data",
        "num.partitions": 1,
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "message.max.bytes": _LARGEST_MESSAGE,
        "replica.fetch.max.bytes": _LARGEST_MESSAGE,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "log.cleaner.dedupe.buffer.size": 2 << 20,
        "log.retention.check.interval.ms": 1000,
        "log.initial.task.delay.ms": 1000,
        "log.segment.delete.delay.ms": 0,
        "broker.heartbeat.interval.ms": 300,
        "broker.session.timeout.ms": 1500,  # a killed broker may come back after that
    } | dict.fromkeys(
        (
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
            "transaction.state.log.min.isr",
            "share.coordinator.state.topic.replication.factor",
            "share.coordinator.state.topic.min.isr",
            "num.recovery.threads.per.data.dir",
        ),
        1,
    )
