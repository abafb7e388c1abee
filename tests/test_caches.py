"""Bounded memories: what they hold, what falls out, and what is then made again."""

from __future__ import annotations

from schemarouter.caches import Bounded, Latest


def test_a_bounded_memory_starts_anew_when_full_and_replaces_without() -> None:
    known = Bounded[str, int](2)
    known["a"], known["b"] = 1, 2
    known["a"] = 3
    assert known == {"a": 3, "b": 2}
    known["c"] = 4
    assert known == {"c": 4}


def test_the_latest_are_made_once_and_what_has_fallen_out_is_made_again() -> None:
    made: list[str] = []

    def make(text: str) -> str:
        made.append(text)
        return text.upper()

    latest = Latest(make, 2)
    assert [latest.get(text) for text in "abab"] == ["A", "B", "A", "B"]
    assert made == ["a", "b"]
    latest.get("c")
    assert ["a" in latest, "b" in latest, "c" in latest] == [False, True, True]
    latest.put("d", "given")
    assert latest.get("d") == "given" and "b" not in latest
    assert latest.get("a") == "A" and made == ["a", "b", "c", "a"]
