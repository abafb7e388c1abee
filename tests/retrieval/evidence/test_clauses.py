"""Clauses of requests in six languages: nothing is lost but what separates them, and dates and numbers stay whole."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preregistration.protocol import load_protocol
from schemarouter.retrieval.evidence.clauses import clauses
from surface.loader import load_surface
from tests.strategies import LAWS

LANGUAGES = load_protocol("development").languages

languages = st.sampled_from([*LANGUAGES, "unknown"])


def letters(text: str) -> str:
    """The letters and digits of a text, in order."""
    return "".join(char for char in unicodedata.normalize("NFKC", text) if char.isalnum())


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(char in rest for char in part)


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            "Find the invoice of March and send it to the customer, then close the ticket.",
            ["Find the invoice of March", "send it to the customer", "close the ticket"],
        ),
        (
            "es",
            "Busca la factura de marzo y envíala al cliente; después cierra el ticket.",
            ["Busca la factura de marzo", "envíala al cliente", "cierra el ticket"],
        ),
        (
            "de",
            "Suche die Rechnung vom März und sende sie dem Kunden, sobald das Ticket zu ist.",
            ["Suche die Rechnung vom März", "sende sie dem Kunden", "das Ticket zu ist"],
        ),
        (
            "ko",
            "3월 청구서를 찾아서 고객에게 보내고 티켓을 닫아 주세요.",
            ["3월 청구서를 찾아서", "고객에게 보내고", "티켓을 닫아 주세요"],
        ),
        (
            "ja",
            "三月の請求書を探して、顧客に送ったら、チケットを閉じてください。",
            ["三月の請求書を探して", "顧客に送ったら", "チケットを閉じてください"],
        ),
        (
            "mixed",
            "3월 invoice 찾아서 customer한테 보내고 ticket close 해 주세요",
            ["3월 invoice 찾아서", "customer한테 보내고", "ticket close 해 주세요"],
        ),
        ("unknown", "um dois três quatro; cinco seis sete", ["um dois três quatro", "cinco seis sete"]),
    ],
)
def test_a_request_is_taken_apart_at_what_its_language_joins_with(
    language: str, text: str, expected: list[str]
) -> None:
    assert clauses(text, language) == expected


def test_the_joints_of_one_language_are_words_of_another() -> None:
    assert clauses("manual and valve check", "de") == ["manual and valve check"]
    assert clauses("Protokoll und Ventil prüfen", "en") == ["Protokoll und Ventil prüfen"]


@pytest.mark.parametrize(
    ("language", "whole"),
    [
        ("en", "weigh 3.75 kg of it"),
        ("en", "the lease of 2026-05-01 at 08:30"),
        ("en", "pay 1,250.50 EUR for it"),
        ("en", "between 10–12 bar at most"),
        ("es", "el peso de 3,75 kg exactos"),
        ("es", "el turno del 01.05.2026 entero"),
        ("de", "die Schicht am 01.05.2026 um 8:30"),
        ("de", "höchstens 1.250,50 EUR zahlen"),
        ("ko", "2026.05.01 근무를 3.75 시간"),
        ("ja", "2026.05.01の勤務を3.75時間"),
        ("mixed", "2026.05.01 shift를 3.75 hour"),
    ],
)
def test_dates_times_and_decimals_are_not_split(language: str, whole: str) -> None:
    assert clauses(whole, language) == [whole]


@pytest.mark.parametrize(
    ("language", "identifier"),
    [("en", "SO-4471"), ("en", "IF-20-B"), ("es", "E-104"), ("es", "PKG-Y-7"), ("de", "OB-33")],
)
def test_a_joint_within_an_identifier_separates_nothing(language: str, identifier: str) -> None:
    text = f"Consignment {identifier} Rotterdam"
    assert clauses(text, language) == [text]


@pytest.mark.parametrize("text", ["", " \n\t", "...", " ,;! ", "、。", "\u3000"])
@pytest.mark.parametrize("language", [*LANGUAGES, "unknown"])
def test_a_text_without_words_has_no_clause(text: str, language: str) -> None:
    assert clauses(text, language) == []


def test_pieces_too_short_to_say_anything_join_the_one_before() -> None:
    assert clauses("Ok. Cancel the order. Now.", "en") == ["Ok", "Cancel the order Now"]
    assert clauses("Now. Yes.", "en") == ["Now Yes"]


WORDS = {
    "en": (["invoice", "lease", "crane", "customer"], ["and", "then", "because", "as soon as", ",", ";", "."]),
    "es": (["factura", "alquiler", "cliente"], ["y", "luego", "para que", "después", ",", ";"]),
    "de": (["Rechnung", "Miete", "Kunde"], ["und", "sobald", "danach", ",", ";"]),
}


@LAWS
@given(data=st.data(), language=st.sampled_from(sorted(WORDS)))
def test_every_word_but_the_joints_is_kept_in_its_place(data: st.DataObject, language: str) -> None:
    words, joints = WORDS[language]
    said = data.draw(st.lists(st.lists(st.sampled_from(words), min_size=1, max_size=3), max_size=5))
    between = data.draw(st.lists(st.sampled_from(joints), min_size=len(said), max_size=len(said)))
    text = " ".join(f"{' '.join(part)} {joint}" for part, joint in zip(said, between, strict=True))
    found = clauses(text, language)
    assert " ".join(found).split() == [word for part in said for word in part]


@LAWS
@given(text=st.text("고서 면,가나 .1。ばて、ので(A)\n", max_size=30) | st.text(max_size=20))
@pytest.mark.parametrize("language", ["ko", "ja", "mixed", "unknown"])
def test_where_endings_close_a_clause_no_letter_is_lost(language: str, text: str) -> None:
    assert "".join(map(letters, clauses(text, language))) == letters(text)


@LAWS
@given(text=st.text("and then SO-1 y e und,. \n3", max_size=40) | st.text(max_size=30), language=languages)
def test_of_any_text_clauses_are_parts_in_order_and_none_is_empty(text: str, language: str) -> None:
    found = clauses(text, language)
    assert is_subsequence("".join(map(letters, found)), letters(text))
    assert all(clause == clause.strip() and clause for clause in found)
    assert found == clauses(unicodedata.normalize("NFKC", text), language)


def test_every_request_of_the_development_surface_has_clauses_and_none_is_empty() -> None:
    for task in load_surface("development").tasks:
        found = clauses(task.prompt.query, task.prompt.language)
        assert found
        assert all(any(char.isalnum() for char in clause) for clause in found), task.prompt.id
