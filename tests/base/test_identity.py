"""Values that are kept by the identity of what they were made from."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.identity import kept_by_identity


@dataclass(frozen=True)
class Source:
    name: str


def test_a_value_is_made_once_for_an_object_and_again_for_an_equal_one() -> None:
    made: list[str] = []

    @kept_by_identity(4)
    def upper(source: Source, end: str = "") -> str:
        made.append(source.name + end)
        return source.name.upper() + end

    first, equal = Source("a"), Source("a")
    assert [upper(first), upper(first), upper(equal), upper(first, "!"), upper(first, "!")] == [
        "A",
        "A",
        "A",
        "A!",
        "A!",
    ]
    assert made == ["a", "a", "a!"]


def test_only_the_newest_values_are_kept_and_their_objects_with_them() -> None:
    @kept_by_identity(3)
    def name(source: Source) -> str:
        return source.name

    for number in range(1000):  # objects that are not kept may have the `id` of an earlier one
        assert name(Source(str(number))) == str(number)
    assert len(name) == 3
    name.clear()
    assert len(name) == 0
