"""Every spanning record once, every byte once, for every order, cut and number of threads."""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import BadSequence
from headrace.formats import FORMATS
from headrace.formats.warm import schema_of
from headrace.ingress import shredder as module
from headrace.ingress.delimiting import Delimiting, finder_of
from headrace.ingress.shredder import SequenceShredder
from tests.ingress.bruteforce import Collector, Span, arrival, record_ends, spans

NEWLINE = Delimiting.of_token(b"\n")
QUOTED = Delimiting.of_quoted(ord(","), ord('"'), -1)
FINDERS = {
    "newline": NEWLINE,
    "crlf": Delimiting.of_token(b"\r\n"),
    "three": Delimiting.of_token(b"abc"),
    "itself": Delimiting.of_token(b"aba"),
    "quoted": QUOTED,
    "escaped": Delimiting.of_quoted(ord(","), ord('"'), ord("\\")),
}


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(borders)]


def ends_of(finder: Delimiting, data: bytes) -> list[int]:
    """Where records end in the whole text. Quotes have no oracle in the standard library: that one is next to it."""
    if len(finder.delimiter) > 1 or finder.states == 1:
        return record_ends(data, finder.delimiter)
    found, state = [], 0
    for i, byte in enumerate(data):
        move = int(finder.table[state, byte])
        state = move & 127
        found += [i + 1] if move >= 128 else []
    return found


def feed(
    shredder: SequenceShredder, finder: Delimiting, todo: list[tuple[int, int, int, bytes]], batches: list[int]
) -> Collector:
    """Offer (origin, sequence, reference, data) in this order, in calls of the given sizes; retries what is refused."""
    collector = Collector({ref: data for _, _, ref, data in todo})
    at = 0
    while at < len(todo):
        size = batches[at % len(batches)] if batches else len(todo)
        pairs = [arrival(finder, *one) for one in todo[at : at + size]]
        collector.add(shredder.arrive(np.array([row for row, _ in pairs]), np.stack([o for _, o in pairs])))
        at += size
    return collector


ALPHABETS = {
    "newline": b"a\n", "crlf": b"a\r\n", "three": b"abcx", "itself": b"abx", "quoted": b'a",\n', "escaped": b'a",\n\\',
}  # fmt: skip


@pytest.mark.parametrize("name", FINDERS)
@settings(max_examples=60)
@given(data=st.data())
def test_every_span_once_and_every_byte_once(name: str, data: st.DataObject) -> None:
    finder = FINDERS[name]
    letters = ALPHABETS[name]
    shredder = SequenceShredder(finder.states)
    texts = data.draw(st.lists(st.lists(st.sampled_from(letters), max_size=60).map(bytes), min_size=1, max_size=3))
    wanted: list[Span] = []
    todo: list[tuple[int, int, int, bytes]] = []
    for origin, text in enumerate(texts):
        places = data.draw(st.lists(st.integers(0, 10_000), max_size=70))
        buffers = cut(text, places)
        wanted += spans(origin, buffers, ends_of(finder, text))
        todo += [(origin, i + 1, 1000 * origin + i, b) for i, b in enumerate(buffers)]
    order = data.draw(st.permutations(todo))
    found = feed(shredder, finder, order, data.draw(st.lists(st.integers(1, 9), max_size=4)))
    assert Counter(found.spans) == Counter(wanted)
    for origin, text in enumerate(texts):
        ends = ends_of(finder, text)
        assert found.text(origin) == text[: ends[-1] if ends else 0]
        assert shredder.close(origin) == len(text) - (ends[-1] if ends else 0)
    assert shredder.waiting == shredder.origins == 0


@example(b'"""\n', True)
@given(st.lists(st.sampled_from(b'a",\n\r'), max_size=80).map(bytes), st.booleans())
def test_the_finder_of_quoted_records_agrees_with_the_format(text: bytes, escape: bool) -> None:
    text = text.replace(b"\r", b"\\") if escape else text
    fmt = FORMATS["csv"].make(
        schema_of(["STRING", "STRING"]), {"multiline": "true", **({"escape": "\\\\"} if escape else {})}
    )
    finder = finder_of(fmt)
    assert finder is not None
    whole = fmt.frame(text, final=False).whole
    found = finder.search(text, 0, len(text), 0)
    # The format looks ahead: a newline that is the last byte does not end a record for it while it may still grow.
    assert max(found.last, 0) in (whole, len(text))
    assert fmt.frame(text + b"x", final=False).whole == max(found.last, 0)


@settings(max_examples=6)
@given(st.integers(0, 2**32), st.integers(0, 999), st.sampled_from([1, 40, 700]))
def test_wrap_around_aliases_and_growth_in_mid_stream(seed: int, beyond: int, distance: int) -> None:
    rng = random.Random(seed)
    highest = 4096 + beyond  # sequence numbers come round while the ring holds 512 to 1,024 of them
    shredder = SequenceShredder(highest=highest)
    count = highest + 1500
    buffers = [bytes(rng.choice(b"ab\n") for _ in range(rng.choice((0, 1, 1, 2, 5)))) for _ in range(count)]
    buffers[rng.randrange(count - 1)] = b"xy"
    order = sorted(range(count), key=lambda i: i + rng.random() * distance)
    todo = [(7, i % highest + 1, i, buffers[i]) for i in order]
    found = feed(shredder, NEWLINE, todo, [rng.randrange(1, 500) for _ in range(5)])
    text = b"".join(buffers)
    assert Counter(found.spans) == Counter(spans(7, buffers, record_ends(text, b"\n")))
    assert found.text(7) == text[: text.rfind(b"\n") + 1]
    assert (shredder.window(7) > 512) == (distance > 512)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_record_over_thousands_of_buffers(backwards: bool) -> None:
    buffers = [b"first\nx", *[b"yy"] * 9000, b"z\nend"]
    todo = [(1, i + 1, i, b) for i, b in enumerate(buffers)]
    shredder = SequenceShredder()
    found = feed(shredder, NEWLINE, todo[::-1] if backwards else todo, [1000])
    assert found.text(1) == b"first\nx" + b"yy" * 9000 + b"z\n"
    assert Counter(found.spans) == Counter([Span(1, 0, 1), Span(1, 1, 9002)])
    assert shredder.window(1) == 512 << 5
    assert shredder.waiting == 1


@pytest.mark.parametrize("sequence", [0, -1, 2**62 + 1])
def test_an_invalid_sequence_number_is_an_error_and_has_no_effect(sequence: int) -> None:
    shredder = SequenceShredder()
    with pytest.raises(BadSequence) as problem:
        shredder.arrive(np.array([[1, sequence, 0, 1, 1, 1, 0]]))
    assert problem.value.params["why"] == "not_a_sequence_number"
    assert shredder.origins == shredder.waiting == 0


@pytest.mark.parametrize("states", [1, 2])
@pytest.mark.parametrize("passed", [3, 400, 2000])
def test_a_duplicate_is_an_error_and_has_no_effect(states: int, passed: int) -> None:
    finder = NEWLINE if states == 1 else FINDERS["crlf"]
    shredder = SequenceShredder(states)
    todo = [(1, i + 1, i, b"a\r\nb") for i in range(passed)]
    feed(shredder, finder, [*todo, (1, passed + 2, 9999, b"\n")], [])
    before = (shredder.waiting, shredder.origins)
    for again in (1, passed, passed + 2):
        row, outcome = arrival(finder, 1, again, 7, b"a\r\nb")
        offered = shredder.offer(np.array([row]), outcome[None])
        assert (offered.accepted, offered.refused, len(offered.units)) == (0, "duplicate", 0)
    assert before == (shredder.waiting, shredder.origins)


def test_a_number_out_of_range_is_refused_without_effect_until_the_ring_has_grown() -> None:
    shredder = SequenceShredder()
    shredder.arrive(np.array([[1, 1, 0, 1, 1, 1, 0]]))
    for turn in range(module.GROW_AFTER):
        offered = shredder.offer(np.array([[1, 600, 1, 1, 1, 1, 0], [1, 2, 2, 1, 1, 1, 0]]))
        assert (offered.accepted, offered.refused, shredder.waiting) == (0, "out_of_range", 1), turn
    assert shredder.window(1) == 2 * 512
    assert shredder.offer(np.array([[1, 600, 1, 1, 1, 1, 0]])).accepted == 1
    far = shredder.arrive
    with pytest.raises(BadSequence) as problem:
        far(np.array([[1, 2**40, 1, 1, 1, 1, 0]]))
    assert problem.value.params["why"] == "too_far"
    assert shredder._big[0].nbytes < 2 * module.MAX_WINDOW


@example(threads=4, seed=1)
@settings(max_examples=4)
@given(threads=st.integers(1, 8), seed=st.integers(0, 999))
def test_threads_find_each_span_once(threads: int, seed: int) -> None:
    rng = random.Random(seed)
    shredder, collected = SequenceShredder(), Collector({})
    todo: queue.Queue[list[int]] = queue.Queue()
    wanted: list[Span] = []
    rows: list[list[int]] = []
    texts = {}
    for origin in range(8):
        buffers = [bytes(rng.choice(b"aab\n") for _ in range(rng.randrange(4))) for _ in range(700)]
        texts[origin] = b"".join(buffers)
        wanted += spans(origin, buffers, record_ends(texts[origin], b"\n"))
        for i, data in enumerate(buffers):
            collected.buffers[origin * 1000 + i] = data
            rows.append(arrival(NEWLINE, origin, i + 1, origin * 1000 + i, data)[0])
    for row in sorted(rows, key=lambda r: r[1] + rng.random() * 900):
        todo.put(row)
    results: list[module.Shredded] = []

    def work() -> None:
        while True:
            batch: list[list[int]] = []
            with contextlib.suppress(queue.Empty):
                while len(batch) < 10:
                    batch.append(todo.get_nowait())
            if not batch:
                return
            offered = shredder.offer(np.array(batch, np.int64).reshape(-1, 7))
            results.append(offered)
            for row in batch[offered.accepted :]:
                todo.put(row)

    pool = [threading.Thread(target=work) for _ in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    leftover = []
    while not todo.empty():
        leftover.append(todo.get())
    if leftover:  # a thread that found the queue empty while another still held a batch
        results.append(shredder.arrive(np.array(leftover)))
    for one in results:
        collected.add(one)
    assert Counter(collected.spans) == Counter(wanted)
    for origin, text in texts.items():
        assert collected.text(origin) == text[: text.rfind(b"\n") + 1]


def test_the_end_of_a_buffer_may_end_its_last_record() -> None:
    shredder = SequenceShredder()
    first = shredder.arrive(np.array([[5, 1, 0, 2, 4, 6, 0]]))  # a\nb\ncd
    last = shredder.arrive(np.array([[5, 2, 1, 0, 0, 0, 1]]))  # nothing, but the record ends here
    assert first.units[:, 3:].tolist() == [[1, 4, 2]]
    assert last.units[:, 3:].tolist() == [[1, 2, 3]]
    assert last.fragments.tolist() == [[0, 4, 6]]
    assert shredder.close(5) == 0


def test_an_origin_that_waits_for_missing_buffers_is_not_closed_as_complete() -> None:
    shredder = SequenceShredder()
    shredder.arrive(np.array([[5, 1, 0, 2, 2, 4, 0], [5, 3, 1, 1, 1, 1, 0]]))
    assert shredder.close_if_complete(5) is None
    shredder.arrive(np.array([[5, 2, 2, -1, -1, 3, 0]]))
    assert shredder.close_if_complete(5) == 0
    assert shredder.origins == 0


def test_waiting_buffers_can_be_moved() -> None:
    shredder = SequenceShredder()
    shredder.arrive(np.array([[5, 1, 100, 2, 4, 6, 0], [5, 2, 101, -1, -1, 3, 0], [6, 1, 300, 1, 1, 9, 0]]))
    assert shredder.lowest() == 100
    waiting = shredder.waiting_below(200)
    assert sorted(waiting.tolist()) == [[5, 100, 4, 6], [5, 101, 0, 3]]
    shredder.move(waiting[:, 1], waiting[:, 1] + 1000, waiting[:, 2])
    assert shredder.lowest() == 300
    found = shredder.arrive(np.array([[5, 3, 102, 1, 1, 1, 0]]))
    assert found.fragments.tolist() == [[1100, 0, 2], [1101, 0, 3], [102, 0, 1]]
