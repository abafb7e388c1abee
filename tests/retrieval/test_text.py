"""Tokens of six languages: what is split, what is kept together, and that nothing is too odd to be read."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemarouter.retrieval.text import tokenize
from tests.strategies import LAWS

any_text = st.text(st.characters(exclude_categories=()), max_size=30)
snippets = st.sampled_from(
    ["5 kg", "T-17", "getInvoiceId", "설비 하중", "荷重センサー", "Gerät", "año", "12.5", "℃", "ｋｇ", "_", "."]
)
mixtures = st.lists(snippets | st.text(max_size=4), max_size=6).map("".join)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("get the invoice", ["get", "the", "invoice"]),
        ("Wie schwer ist das Gerät?", ["wie", "schwer", "ist", "das", "gerät"]),
        ("Straße MÜNCHEN", ["strasse", "münchen"]),
        ("¿Cuántos años?", ["cuántos", "años"]),
        ("설비의 하중", ["설비", "비의", "하중"]),
        ("荷重を教えて", ["荷重", "を", "教", "えて"]),
        ("データ", ["デー", "ータ"]),
        ("人々", ["人々"]),
        ("설비 load cell 값", ["설비", "load", "cell", "값"]),
        ("lease를 갱신해 줘", ["lease", "를", "갱신", "신해", "줘"]),
        ("값", ["값"]),
        ("重", ["重"]),
        ("あ", ["あ"]),
        ("𠮷野家", ["𠮷野", "野家"]),
    ],
)
def test_words_of_six_languages(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("billing.get_invoice", ["billing", "get", "invoice"]),
        ("getInvoiceId", ["get", "invoice", "id"]),
        ("parseHTTPResponse", ["parse", "http", "response"]),
        ("invoice_id", ["invoice", "id"]),
        ("SNAKE_CASE.kebab-case", ["snake", "case", "kebab", "case"]),
        ("T-17", ["t", "17"]),
        ("2025-04-30", ["2025", "04", "30"]),
        ("__init__", ["init"]),
        ("...", []),
        ("", []),
        (" \n\t\u3000", []),
        ("\u200b\ud800\U0001f600", []),
    ],
)
def test_identifiers_are_split_and_punctuation_is_dropped(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("5 kg", ["5", "5kg", "kg"]),
        ("5kg", ["5", "5kg", "kg"]),
        ("５ｋｇ", ["5", "5kg", "kg"]),
        ("5\u00a0kg", ["5", "5kg", "kg"]),
        ("5 kg.", ["5", "5kg", "kg"]),
        ("12.5 mm", ["12.5", "12.5mm", "mm"]),
        ("1,000 kg", ["1,000", "1,000kg", "kg"]),
        ("50 %", ["50", "50%", "%"]),
        ("21 °C", ["21", "21°c", "°c"]),
        ("21℃", ["21", "21°c", "°c"]),
        ("3 m/s", ["3", "3m/s", "m/s"]),
        ("4 m²", ["4", "4m2", "m2"]),
        ("7 µg", ["7", "7μg", "μg"]),
        ("5kg의", ["5", "5kg", "kg", "의"]),
        ("17", ["17"]),
        ("5개", ["5", "개"]),
        ("5", ["5"]),
    ],
)
def test_a_number_is_kept_bare_with_its_unit_and_the_unit_alone(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("number", "unit"),
    [("12.5", "mg/dL"), ("5", "kW"), ("3", "kWh"), ("5", "MHz"), ("10", "mL"), ("2", "kPa"), ("5", "Ω"), ("5", "kΩ")],
)
def test_a_unit_with_capitals_is_kept_whole(number: str, unit: str) -> None:
    folded = unit.casefold()
    for written in (f"{number}{unit}", f"{number} {unit}", f"{number} {unit}."):
        assert {number, number + folded, folded} <= set(tokenize(written))


@pytest.mark.parametrize("unit", ["kg", "mm", "kW", "mL", "m²", "Ω", "°C", "%", "m/s", "mg/dL"])
def test_a_unit_after_a_number_meets_the_unit_that_a_contract_registers_alone(unit: str) -> None:
    assert set(tokenize(f"5 {unit}")) & set(tokenize(unit))


@pytest.mark.parametrize(
    "word",
    ["invoices", "years", "días", "años", "geräte", "größen", "stück", "kg-sack", "km-lauf", "getInvoice", "and/or"],
)
def test_a_number_before_a_word_does_not_break_the_word(word: str) -> None:
    assert set(tokenize(word)) <= set(tokenize(f"5 {word}"))


UNITS = [
    "kW",
    "MWh",
    "kPa",
    "dB",
    "GiB",
    "degC",
    "mL",
    "°C",
    "%",
    "m/s",
    "km/h",
    "m³/h",
    "mg/dL",
    "Mbit/s",
    "W/m²",
    "‰",
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_alone_is_one_token_and_the_same_as_after_a_number(unit: str) -> None:
    (token,) = tokenize(unit)
    for written in (f"5 {unit}", f"5{unit}", f"(5 {unit})", f"風速が5{unit}です", f"약 5 {unit}의"):
        assert [item for item in tokenize(written) if item.isascii() or item == token or item == f"5{token}"] == [
            "5",
            f"5{token}",
            token,
        ]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("5㎧", ["5", "5m/s", "m/s"]),
        ("5 KWh", ["5", "5kwh", "kwh"]),
        ("capacity_kW", ["capacity", "kw"]),
        ("湿度%", ["湿度", "%"]),
        ("80 km/h-Zone", ["80", "80km/h", "km/h", "zone"]),
        ("3 T-17", ["3", "t", "17"]),
    ],
)
def test_units_in_company(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("create/update", ["create", "update"]),
        ("5 and/or", ["5", "5and", "and", "or"]),
        ("N/A", ["n", "a"]),
        ("m/d/y", ["m", "d", "y"]),
        ("a/m/s", ["a", "m", "s"]),
        ("%20", ["20"]),
        ("100%ige", ["100", "ige"]),
        ("getKB", ["get", "kb"]),
        ("dBase", ["d", "base"]),
    ],
)
def test_what_only_looks_like_a_unit_is_split_as_ever(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("text", "parts"), [("データ・ベース", ["データ", "ベース"]), ("・", []), ("ﾃﾞｰﾀ･", ["データ"])]
)
def test_the_middle_dot_between_katakana_is_punctuation(text: str, parts: list[str]) -> None:
    assert tokenize(text) == [token for part in parts for token in tokenize(part)]


lower = st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=6)


@LAWS
@given(words=st.lists(lower, min_size=1, max_size=5))
def test_snake_dotted_spaced_and_camel_spellings_are_the_same(words: list[str]) -> None:
    camel = words[0] + "".join(map(str.capitalize, words[1:]))
    pascal = "".join(map(str.capitalize, words))
    for spelling in ("_".join(words), ".".join(words), " ".join(words), "-".join(words), camel, pascal):
        assert tokenize(spelling) == words


scripts = {
    "hangul": st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3),
    "kana": st.characters(min_codepoint=0x3041, max_codepoint=0x3093),
    "han": st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF),
}


@pytest.mark.parametrize("script", sorted(scripts))
@LAWS
@given(data=st.data())
def test_a_run_becomes_its_bigrams_and_one_character_stays(script: str, data: st.DataObject) -> None:
    run = data.draw(st.text(scripts[script], min_size=1, max_size=8))
    expected = [run[i : i + 2] for i in range(len(run) - 1)] if len(run) > 1 else [run]
    assert tokenize(run) == expected
    assert tokenize(f"ab {run}cd") == ["ab", *expected, "cd"]


@LAWS
@given(
    number=st.from_regex(r"[0-9]{1,4}([.,][0-9]{1,3})?", fullmatch=True),
    unit=st.sampled_from(["kg", "mm", "%", "°c", "m/s"]),
)
def test_with_or_without_a_space_a_measure_is_the_same(number: str, unit: str) -> None:
    expected = [number, number + unit, unit]
    assert tokenize(number + unit) == expected
    assert tokenize(f"about {number} {unit}, or so") == ["about", *expected, "or", "so"]


@LAWS
@given(text=any_text | mixtures, form=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_every_normal_form_of_a_text_gives_the_same_tokens(text: str, form: str) -> None:
    assert tokenize(unicodedata.normalize(form, text)) == tokenize(text)  # type: ignore[arg-type]


@LAWS
@given(text=any_text | mixtures)
@example(text="5\ud800kg \udcff")
def test_no_text_is_too_odd_and_tokens_are_folded_words(text: str) -> None:
    for token in tokenize(text):
        assert token
        assert token == token.casefold()
        assert not any(c.isspace() or c == "_" or unicodedata.category(c) in {"Cs", "Cn", "Cc"} for c in token)


@LAWS
@given(left=any_text | mixtures, right=any_text | mixtures)
def test_the_tokens_of_two_paragraphs_are_those_of_each(left: str, right: str) -> None:
    assert tokenize(f"{left}\n|\n{right}") == tokenize(left) + tokenize(right)
