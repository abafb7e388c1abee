"""Text as it comes: invisible characters, other spellings of one sign, and requests that are far too long."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.catalog import OutputField
from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.evidence.clauses import _PLAIN, clauses
from schemarouter.retrieval.evidence.literals import is_literal, literals
from schemarouter.retrieval.language import language_of
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.text import MAX_QUERY_CHARACTERS, cut_query, tokenize
from tests.strategies import LAWS

ENTRIES = [Entry("a", "refund an order"), Entry("b", "weigh a pump")]
# How identifiers were once described, in time that grows with the square of the text: what is found stays the same.
_LITERAL = re.compile(
    r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9#:/._+-]*\d)(?=[A-Za-z0-9#:/._+-]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9:/._+#-]{2,}[A-Za-z0-9]",
    re.ASCII,
)
_ADDRESS = re.compile(r"\S+@\S+")
SIGNS = st.text(st.sampled_from("aB1#:/._+-@ é한.,;\n"), max_size=40)


@pytest.mark.parametrize("sign", ["\u00ad", "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u200e", "\ufe0f"])
@pytest.mark.parametrize("retriever", ["bm25", "typed", "dense"])
def test_an_invisible_character_in_a_word_changes_no_ranking(sign: str, retriever: str) -> None:
    built = build_retriever(retriever, ENTRIES)
    assert built.rank(f"re{sign}fund", k=2).items == built.rank("refund", k=2).items
    assert built.rank("refund", k=2).ids


def test_white_space_and_line_ends_still_part_words() -> None:
    assert tokenize("one\ntwo\tthree\u2028four\u3000five") == ["one", "two", "three", "four", "five"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("5 \u00b5g", "5 \u03bcg"), ("\u2103", "\u00b0C"), ("\u212b", "\u00c5"), ("\u212a", "K"), ("\u2126", "\u03a9")],
)
def test_two_spellings_of_a_unit_are_one(one: str, other: str) -> None:
    assert one != other and tokenize(one) == tokenize(other)
    units = [OutputField(name="x", type="number", unit=text.split()[-1], dimension="d").unit for text in (one, other)]
    assert units[0] == units[1]


@pytest.mark.parametrize(("text", "numbers"), [("1½", ["1", "1", "2"]), ("10²", ["10", "2"]), ("10⁶", ["10", "6"])])
def test_a_number_written_small_is_no_digit_of_the_one_before(text: str, numbers: list[str]) -> None:
    assert tokenize(text) == numbers
    assert tokenize("5 m²") == tokenize("5 m2")


@LAWS
@given(SIGNS)
def test_identifiers_are_those_of_their_description(text: str) -> None:
    normal = unicodedata.normalize("NFKC", text)
    assert literals(text) == _LITERAL.findall(normal)
    assert all(map(is_literal, literals(text)))
    assert is_literal(normal) == (_LITERAL.fullmatch(normal) is not None)


@LAWS
@given(SIGNS)
def test_mail_addresses_say_nothing_of_a_language(text: str) -> None:
    assert language_of(text) == language_of(_ADDRESS.sub(" ", text))


@LAWS
@given(st.text(st.sampled_from("ab1.:—!?, \n고"), max_size=30))
def test_signs_in_a_row_part_what_they_parted(text: str) -> None:
    dense = "\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3"
    signs = rf"[!?;。]+|(?<!\d)[.](?=\s|$|[{dense}])|[.]+$|[:…—–]+(?=\s|$|[{dense}])|\n|,\s|、|[()「」]"
    spans = [match.span() for match in re.finditer(signs, text)]
    assert [match.span() for match in _PLAIN.finditer(text)] == spans


def test_a_query_above_the_stated_length_is_cut_with_a_note() -> None:
    long = "refund " * MAX_QUERY_CHARACTERS
    assert cut_query("refund") == ("refund", "")
    text, note = cut_query(long)
    assert text == long[:MAX_QUERY_CHARACTERS] and f"first {MAX_QUERY_CHARACTERS:,} of {len(long):,} characters" in note
    for retriever in ("bm25", "dense", "typed"):
        built = build_retriever(retriever, ENTRIES)
        ranking = built.rank(long, k=2)
        assert note in ranking.stages[-1].note and ranking.items == built.rank(text, k=2).items


@pytest.mark.parametrize(
    "text",
    ["-" * 400_000, "a-" * 200_000, ":" * 400_000 + "x", "." * 400_000 + "x", "A" * 400_000 + "@", "1," * 200_000],
)
def test_reading_takes_time_in_step_with_the_text(text: str) -> None:
    """Each took minutes when it took time with the square of the text; a test run ends long before that."""
    assert isinstance(language_of(text), str)
    literals(text)
    clauses(text, "en")
    tokenize(text)
