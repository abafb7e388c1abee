"""Identifiers in requests, and what they have in common with registered examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.retrieval.evidence.literals import SURE, Shape, is_literal, likeness, literals, shape
from schemarouter.state import PATTERNS
from tests.strategies import LAWS, identifiers

shapes = st.builds(Shape, st.sampled_from(["", "A", "ITM", "itm"]), st.sampled_from(["A-9", "A9", "a-9", "9-A"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where is ITM-00519377 now?", ["ITM-00519377"]),
        ("Miete LSE:4471/b, Gerät T-17.", ["LSE:4471/b", "T-17"]),
        ("plate M-KL4471 and tag a.b+c_9x", ["M-KL4471", "a.b+c_9x"]),
        ("설비 T-17의 값", ["T-17"]),
        ("설비T-17을 확인", ["T-17"]),
        ("コンテナMSKU1234567の場所", ["MSKU1234567"]),
        ("ＭＳＫＵ１２３４５６７の場所", ["MSKU1234567"]),
        ("on 2026-05-01 at 08:30 for 1,250.50", []),
        ("call 4471 or +49 30 4471", []),
        ("no identifiers here", []),
        ("A1 and B22", []),
        ("", []),
    ],
)
def test_identifiers_have_letters_and_digits_and_dates_and_numbers_are_none(text: str, expected: list[str]) -> None:
    assert literals(text) == expected


@LAWS
@given(text=st.text(max_size=30) | st.text("aB9-. :설は", max_size=20))
def test_what_is_found_is_an_identifier_of_the_text_by_itself(text: str) -> None:
    for found in literals(text):
        assert is_literal(found)
        assert literals(found) == [found]
        assert any(char.isdigit() for char in found)
        assert any(char.isalpha() for char in found)


@LAWS
@given(text=identifiers)
def test_an_identifier_alone_in_a_sentence_is_found_whole(text: str) -> None:
    assert (literals(f"see {text} there") == [text]) or not is_literal(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ITM-00519377", Shape("ITM", "A-9")),
        ("shp-7", Shape("shp", "a-9")),
        ("Ab12cD", Shape("Ab", "Aa9aA")),
        ("4471/b", Shape("", "9/a")),
        ("", Shape("", "")),
    ],
)
def test_a_shape_is_the_head_and_the_runs(text: str, expected: Shape) -> None:
    assert shape(text) == expected


@LAWS
@given(text=st.from_regex(PATTERNS["stable_observed_identifiers"], fullmatch=True), count=st.integers(0, 9))
def test_the_length_of_a_run_of_digits_does_not_change_a_shape(text: str, count: int) -> None:
    assert shape(f"{text}x{'7' * (count + 1)}") == shape(f"{text}x1")


@LAWS
@given(one=shapes, other=shapes)
def test_likeness_is_symmetric_and_full_only_for_the_same_shape(one: Shape, other: Shape) -> None:
    score = likeness(one, other)
    assert score == likeness(other, one)
    assert 0 <= score <= 1
    assert (score >= SURE) == (one == other and len(one.head) > 1)


def test_a_head_of_one_letter_says_less_than_a_longer_one() -> None:
    assert likeness(Shape("ITM", "A-9"), Shape("ITM", "A9")) == 0.5
    assert likeness(Shape("T", "A-9"), Shape("T", "A9")) == 0.3
    assert likeness(Shape("T", "A-9"), Shape("T", "A-9")) == 0.8
    assert likeness(Shape("", "9"), Shape("", "9")) == 0.5
