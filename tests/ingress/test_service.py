"""The gateway service: a gateway that dies is replaced by one with the same streams."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headrace.errors import ExternalError
from headrace.ingress import entries as disk
from headrace.ingress import gateway_service as module
from headrace.ingress.gateway_messages import GatewayAnswer, GatewayOrder
from headrace.ingress.gateway_service import GatewayService
from headrace.ingress.journal_files import locked
from tests.e2e.support import until
from tests.ingress.test_gateway import Site


def place(service: GatewayService, name: str) -> tuple[str, int]:
    host, _, port = service.addresses(name)[0].split("://")[1].split("/")[0].rpartition(":")
    return host, int(port)


def taken(address: tuple[str, int], name: str = "s") -> bool:
    client = http.client.HTTPConnection(*address, timeout=10)
    try:
        client.request("POST", f"/ingest/{name}", b"{}")
        return client.getresponse().status == 204
    except (OSError, http.client.HTTPException):
        return False
    finally:
        client.close()


def test_a_call_right_after_the_gateway_died_leaves_no_stream_closed(tmp_path: Path) -> None:
    service = GatewayService(tmp_path / "gateway.log")
    sites = [Site(tmp_path, kind, {}, name=name) for kind, name in (("http", "s"), ("tcp", "t"))]
    try:
        for site in sites:
            service.open(site.definition, site.directory, site.settings)
        before = place(service, "s"), place(service, "t")
        process = service._process
        assert process is not None
        process.kill()
        process.wait()
        with socket.create_server(before[1]):  # one stream cannot be opened again now
            found = service.metrics("s")
            assert found is not None and found["problem"] == ""
            assert taken(before[0])
            closed = service.metrics("t")
            assert closed is not None and closed["state"] == "closed" and "ADDRESS_IN_USE" in closed["problem"]
        until(lambda: (service.metrics("t") or {})["state"] == "open", "the other stream is open again", 10)
        assert (place(service, "s"), place(service, "t")) == before
        assert (service.metrics("t") or {})["gateway_restarts"] == 1
    finally:
        service.stop()


def test_a_question_to_a_gateway_that_dies_before_it_answers_is_asked_again(tmp_path: Path) -> None:
    service = GatewayService(tmp_path / "gateway.log")
    site = Site(tmp_path, "http", {}, name="s")
    try:
        service.open(site.definition, site.directory, site.settings)
        asks: list[Callable[[], object]] = [partial(service.metrics, "s"), partial(service.sync, "s")]
        for ask in asks:
            process = service._process
            assert process is not None
            os.kill(process.pid, signal.SIGSTOP)  # it takes the order, and does not answer
            killing = threading.Timer(0.5, process.kill)
            killing.start()
            ask()
            killing.join()
            assert (service.metrics("s") or {})["state"] == "open"
            assert taken(place(service, "s"))
    finally:
        service.stop()


def test_the_metrics_of_a_gateway_that_does_not_answer_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = GatewayService(tmp_path / "gateway.log")
    site = Site(tmp_path, "http", {}, name="s")
    try:
        service.open(site.definition, site.directory, site.settings)
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
        process = service._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        found = service.metrics("s")
        assert found is not None and found["state"] == "closed" and "GATEWAY_FAILED" in found["problem"]
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: (service.metrics("s") or {})["state"] == "open", "it answers again", 10)
    finally:
        service.stop()


def test_a_journal_whose_close_fails_is_closed_anyway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = GatewayService(tmp_path / "gateway.log")

    def fail(order: GatewayOrder) -> GatewayAnswer:
        raise ExternalError("Input/output error")

    monkeypatch.setattr(service, "_ask", fail)
    service._orders = {name: GatewayOrder("open", name) for name in ("s", "t")}
    service.close("s")
    assert set(service._orders) == {"t"}


def test_a_slow_open_is_waited_for_while_it_reports_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = GatewayService(tmp_path / "gateway.log")
    sites = [Site(tmp_path, "http", {}, name=name) for name in ("s", "t")]
    try:
        service.open(sites[0].definition, sites[0].directory, sites[0].settings)
        monkeypatch.setattr(module, "ANSWER_SECONDS", 2.5)
        sites[1].directory.mkdir(parents=True)
        lock = locked(sites[1].directory)  # another gateway has not let go yet
        opened = threading.Thread(
            target=service.open, args=(sites[1].definition, sites[1].directory, sites[1].settings)
        )
        opened.start()
        end = time.monotonic() + 4
        while time.monotonic() < end:
            assert taken(place(service, "s"))  # the other stream is not kept waiting
            assert service.metrics("s") is not None
            time.sleep(0.1)
        assert opened.is_alive()
        os.close(lock)
        opened.join(10)
        assert service.addresses("t")
    finally:
        service.stop()


def test_a_slow_open_after_a_restart_does_not_delay_the_other_streams(tmp_path: Path) -> None:
    service = GatewayService(tmp_path / "gateway.log")
    sites = [Site(tmp_path, "http", {}, name=name) for name in ("s", "t")]
    try:
        for site in sites:
            service.open(site.definition, site.directory, site.settings)
        places = [place(service, name) for name in ("s", "t")]
        process = service._process
        assert process is not None
        process.kill()
        process.wait()
        lock = locked(sites[0].directory)  # as if its journal took long
        until(lambda: taken(places[1], "t"), "the other stream is open again", 20)
        assert not taken(places[0])
        os.close(lock)
        until(lambda: taken(places[0]), "so is this one", 20)
    finally:
        service.stop()


def test_a_damaged_journal_is_reported_and_reopened_when_it_is_restored(tmp_path: Path) -> None:
    service = GatewayService(tmp_path / "gateway.log")
    site = Site(tmp_path, "http", {}, name="s")
    try:
        service.open(site.definition, site.directory, site.settings)
        assert taken(place(service, "s"))
        process = service._process
        assert process is not None
        process.kill()
        process.wait()
        log = disk.ready_path(site.directory, 1)
        moved = log.rename(tmp_path / "away")
        until(lambda: "JOURNAL_DAMAGED" in (service.metrics("s") or {}).get("problem", ""), "it is shown", 20)
        assert not taken(place(service, "s"))
        moved.rename(log)
        until(lambda: taken(place(service, "s")), "it is open again", 20)
        assert len(site.read()) == 2
    finally:
        service.stop()
