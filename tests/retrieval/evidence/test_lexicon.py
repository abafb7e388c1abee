"""The cross-lingual lexicon: which terms are found in a request, what they weigh, and what its packaged lists may hold."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preregistration.protocol import load_protocol
from schemarouter.retrieval.evidence.lexicon import FOLDER, Lexicon, LexiconError, shared_lexicon
from schemarouter.retrieval.evidence.words import stem
from surface.loader import ROOT, load_full_catalog, load_surface
from tests.strategies import LAWS

LANGUAGES = load_protocol("development").languages

LISTS = sorted(FOLDER.glob("*.json"))
every_list = pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)


def made(folder: Path, **lists: dict[str, list[str]]) -> Lexicon:
    """A lexicon of these lists: language -> term -> what it means."""
    for language, terms in lists.items():
        listed = {term: {"means": means, "from": "catalog:shop.find_order"} for term, means in terms.items()}
        (folder / f"{language}.json").write_text(json.dumps(listed, ensure_ascii=False), encoding="utf-8")
    return Lexicon(folder)


def test_the_longest_term_wins_and_nothing_inside_it_is_found_again(tmp_path: Path) -> None:
    lexicon = made(
        tmp_path, ko={"창고": ["warehouse"], "창고 이동": ["transfer"], "이동": ["move"]}, es={"pedido": ["order"]}
    )
    assert lexicon.stems("창고 이동해 줘", "ko") == {"transfer": 1.0}
    assert lexicon.stems("창고로 이동", "ko") == {stem("warehouse"): 1.0, stem("move"): 1.0}
    assert lexicon.stems("창고 이동", "es") == {}


def test_terms_of_spaced_languages_begin_words_and_may_be_longer_than_one(tmp_path: Path) -> None:
    lexicon = made(
        tmp_path, es={"pedid": ["order"], "orden de compra": ["purchase"], "compra": ["buy"], "dido": ["wrong"]}
    )
    assert lexicon.stems("Los PEDIDOS", "es") == {"order": 1.0}
    assert lexicon.stems("la orden de compra", "es") == {stem("purchase"): 1.0}
    assert lexicon.stems("la orden de la compra", "es") == {stem("buy"): 1.0}


def test_terms_of_unspaced_languages_are_found_anywhere(tmp_path: Path) -> None:
    lexicon = made(tmp_path, ja={"予約": ["booking"], "会議室": ["room"]})
    assert lexicon.stems("次の会議室予約を頼む", "ja") == {stem("booking"): 1.0, "room": 1.0}


def test_parts_of_german_compounds_count_less_and_short_words_have_none(tmp_path: Path) -> None:
    lexicon = made(tmp_path, de={"rechnung": ["invoice"], "mahn": ["remind"]}, en={"voice": ["wrong"]})
    assert lexicon.stems("Eine Rechnung", "de") == {stem("invoice"): 1.0}
    assert lexicon.stems("Lieferantenrechnung", "de") == {stem("invoice"): 0.7}
    assert lexicon.stems("Mahnrechnung", "de") == {"remind": 1.0, stem("invoice"): 0.7}
    assert lexicon.stems("xrechnung", "de") == {}
    assert lexicon.stems("zzzzzzzmahn", "de") == {}, "a part of four letters stands in too many words"
    assert lexicon.stems("multivoiced", "en") == {}, "only German builds compounds"


def test_a_term_shares_its_weight_among_its_meanings_and_a_stem_is_capped(tmp_path: Path) -> None:
    lexicon = made(tmp_path, es={"mover": ["move", "shift", "moves", "transfer"], "llevar": ["move"]})
    share = 1 / math.sqrt(3)
    assert lexicon.stems("mover", "es") == pytest.approx({"move": share, "shift": share, "transfer": share})
    assert lexicon.stems("mover y llevar", "es")["move"] == pytest.approx(1 + share)
    assert lexicon.stems("llevar " * 9, "es") == {"move": 2.0}


def test_mixed_requests_are_korean_and_english(tmp_path: Path) -> None:
    lists = {"ko": {"주문": ["order"]}, "en": {"parcel": ["shipment"]}, "ja": {"注文": ["wrong"]}}
    lexicon = made(tmp_path, **lists)
    assert lexicon.stems("이 주문 parcel 注文", "mixed") == {"order": 1.0, "shipment": 1.0}
    assert lexicon.stems("이 주문 parcel", "ko") == {"order": 1.0}
    assert lexicon.stems("이 주문 parcel", "unknown") == lexicon.stems("이 주문 parcel", "fr") == {}


@pytest.mark.slow
@LAWS
@given(text=st.text(max_size=20) | st.text("주문이동 ", max_size=12), language=st.sampled_from([*LANGUAGES, "unknown"]))
def test_weights_are_above_0_and_at_most_2_for_any_text(text: str, language: str) -> None:
    weights = shared_lexicon().stems(text, language)
    assert all(0 < weight <= 2 for weight in weights.values())
    assert weights == shared_lexicon().stems(unicodedata.normalize("NFKC", text), language)


@LAWS
@given(text=st.text("ab ", max_size=14))
def test_terms_found_anywhere_are_what_a_naive_left_to_right_search_finds(text: str) -> None:
    terms = {"ab": ["one"], "aba": ["two"], "bb": ["three"], "b a": ["four"], "abab": ["five"]}
    found: dict[str, float] = {}
    start = 0
    while start < len(text):
        longest = max((term for term in terms if text.startswith(term, start)), key=len, default="")
        if longest:
            word = stem(terms[longest][0])
            found[word] = min(2.0, found.get(word, 0.0) + 1.0)
        start += len(longest) or 1
    assert _of_letters().stems(text, "ko") == found


@cache
def _of_letters() -> Lexicon:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return made(
            Path(folder), ko={"ab": ["one"], "aba": ["two"], "bb": ["three"], "b a": ["four"], "abab": ["five"]}
        )


def entry_json(**entry: Any) -> str:
    return json.dumps({"pedido": entry})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "dictionary"),
        (entry_json(means=[], **{"from": "catalog:a.b"}), "pedido.means"),
        (entry_json(means=["order"]), "pedido.from"),
        (entry_json(means=["order"], **{"from": "a.b"}), "pattern"),
        (entry_json(means=["order"], **{"from": "frozen:en-01"}), "pattern"),
        (entry_json(means=["order"], **{"from": "catalog:a b"}), "pattern"),
        (entry_json(means=[3], **{"from": "catalog:a.b"}), "pedido.means.0"),
        (entry_json(means="order", **{"from": "catalog:a.b"}), "pedido.means"),
        (entry_json(means=["order"], note="x", **{"from": "catalog:a.b"}), "pedido.note"),
        (json.dumps({"pedido": "order"}), "pedido"),
    ],
)
def test_a_malformed_list_is_refused_with_its_name_and_the_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "es.json").write_text(text)
    with pytest.raises(LexiconError, match=rf"^es\.json: .*{message}"):
        Lexicon(tmp_path)


def test_the_identity_follows_from_the_bytes_and_names_of_the_lists(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c", "d")]
    for folder in folders:
        folder.mkdir()
    one = made(folders[0], es={"pedido": ["order"]}).identity
    assert made(folders[1], es={"pedido": ["order"]}).identity == one
    assert made(folders[2], es={"pedido": ["orders"]}).identity != one
    assert made(folders[3], ko={"pedido": ["order"]}).identity != one


@cache
def vocabulary() -> frozenset[str]:
    """The stems of every word of the catalog files, and of its letters alone (``pm`` of PM10)."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "catalog").glob("*.json"))]
    text = unicodedata.normalize("NFKC", " ".join(texts)).casefold()
    return frozenset(map(stem, [*re.findall(r"[^\W_]+", text), *re.findall(r"[a-z]+", text)]))


def entries(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_there_is_a_list_for_every_language_that_needs_one() -> None:
    assert {path.stem for path in LISTS} == set(LANGUAGES) - {"mixed"}


@every_list
def test_every_term_is_written_as_it_is_looked_for(path: Path) -> None:
    terms = entries(path)
    assert [term for term in terms if unicodedata.normalize("NFKC", term).lower() != term or term != term.strip()] == []
    assert [term for term in terms if len(term) < 2] == []


@every_list
def test_spellings_that_are_looked_for_alike_mean_the_same(path: Path) -> None:
    meanings: dict[str, list[str]] = {}
    for term, entry in entries(path).items():
        assert meanings.setdefault(term.casefold(), entry["means"]) == entry["means"]


@every_list
def test_no_term_is_given_twice(path: Path) -> None:
    pairs = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=lambda pairs: pairs)
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names)


@every_list
def test_every_source_exists(path: Path) -> None:
    catalog, tasks = load_full_catalog(), load_surface("development").by_id
    known: dict[str, set[str]] = {"catalog": set(catalog.route_ids), "development": set(tasks)}
    sources = {entry["from"] for entry in entries(path).values()}
    assert [source for source in sources if source.split(":", 1)[1] not in known[source.split(":", 1)[0]]] == []


@every_list
def test_every_meaning_is_a_word_of_the_catalog(path: Path) -> None:
    meanings = {word for entry in entries(path).values() for mean in entry["means"] for word in mean.casefold().split()}
    assert sorted(word for word in meanings if stem(word) not in vocabulary()) == []


@every_list
def test_every_term_is_found_in_a_request_that_is_nothing_else(path: Path) -> None:
    lexicon = shared_lexicon()
    assert [term for term in entries(path) if not lexicon.stems(term, path.stem)] == []
