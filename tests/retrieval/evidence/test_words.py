"""Content words by their stems: the ground on which requests and contracts meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.retrieval.evidence.words import content_stems, stem
from schemarouter.retrieval.text import tokenize
from tests.strategies import LAWS


@pytest.mark.parametrize(
    ("one", "other"),
    [("invoices", "invoice"), ("shipping", "shipped"), ("cancel", "cancels"), ("warehouses", "warehouse")],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_function_words_numbers_and_other_scripts_have_no_stem() -> None:
    assert content_stems("Please get the orders of these customers") == ["order", "custom"]
    assert content_stems("4471, 3.5, 2026-05-01, 設備 설비") == []
    assert content_stems("") == content_stems("the of and to") == []


def test_identifiers_are_taken_apart_as_field_names_are() -> None:
    assert content_stems("origin_location_id") == ["origin", "locat", "id"]
    assert content_stems("originLocation") == ["origin", "locat"]
    assert content_stems("shop.find_order") == ["shop", "find", "order"]


def test_function_words_of_the_language_are_left_out_beside_the_english_ones() -> None:
    assert "mit" in content_stems("Order mit Kunde")
    assert content_stems("Order mit Kunde", "de") == ["order", "kund"]
    assert content_stems("the order", "unknown") == content_stems("the order", "ko") == ["order"]


@LAWS
@given(text=st.text(max_size=40) | st.lists(st.sampled_from(["orders", "the", "5 kg", "설비"])).map(" ".join))
def test_content_stems_are_stems_of_tokens_in_order(text: str) -> None:
    every = iter([stem(token) for token in tokenize(text)])
    assert all(word in every for word in content_stems(text))


@LAWS
@given(word=st.text(max_size=12))
def test_a_stem_is_the_same_every_time(word: str) -> None:
    assert stem(word) == stem.__wrapped__(word)
