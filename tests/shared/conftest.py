"""Epochs in these tests are small. Their packs of events travel as files nevertheless, from 512 bytes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _small_packs_in_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.bridge.packs.LARGE_FROM", 512)
        yield
