"""Every feature from the request alone: its value where it fires, and 0 where it does not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.evidence.contracts import Contracts
from schemarouter.retrieval.evidence.lexicon import shared_lexicon
from schemarouter.retrieval.evidence.relevance import FEATURES, QueryEvidence, Relevance, WeightedBM25
from schemarouter.retrieval.evidence.requests import Requests
from schemarouter.retrieval.vectors import QueryVectors
from tests.retrieval.evidence.yard import ITEM, Field, endpoint, text

Table = dict[str, list[float]]


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "query", "scores"),
    [
        # Of equal length: c * 2.2 / (c + 1.2), relative to the best.
        ([{"a": 1, "x": 3}, {"a": 4}], {"a": 1}, [1 / (8.8 / 5.2), 1]),
        # Lengths 1 and 4 of 2.5 on average: 1.2 * (0.5 + 0.5 * length / 2.5) instead of 1.2.
        ([{"a": 1}, {"a": 1, "x": 3}], {"a": 1}, [1, (1 + 0.84) / (1 + 1.56)]),
        # In 2 and in 1 of 3 documents.
        ([{"a": 1, "b": 1}, {"a": 1, "c": 1}, {"d": 2}], {"a": 1, "b": 1},
         [1, math.log(1.6) / (math.log(1.6) + math.log(1 + 2.5 / 1.5)), 0]),
        ([{"a": 1, "b": 1}, {"a": 1, "c": 1}, {"d": 2}], {"b": 0.25, "c": 1}, [0.25, 1, 0]),
        ([{"a": 1}, {"b": 1}], {"unknown": 1}, [0, 0]),
        ([{}, {}], {"a": 1}, [0, 0]),
    ],
    ids=["counts", "lengths", "rarity", "weights", "unknown", "empty"],
)  # fmt: skip
def test_words_weigh_by_count_length_and_rarity(
    documents: list[dict[str, float]], query: dict[str, float], scores: list[float]
) -> None:
    assert WeightedBM25(documents, b=0.5).scores(query).tolist() == pytest.approx(scores, abs=1e-12)


# --- clauses ----------------------------------------------------------------------------------------------------------


EVIDENCE = QueryEvidence(
    whole=np.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.0] * 6, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]]),
    words=np.array([[1.0, 0.5, 0.0], [0.0, 0.2, 1.0]]),
    meaning=np.array([[0.8, 0.25, 0.0], [0.0, 0.6, 0.4]]),
    cover=np.array([[1.0, 0.5, 0.1], [0.2, 0.4, 1.0]]),
    literal_kinds=np.zeros(0),
    has_literal=False,
    unread="",
)


def left(*finished: bool) -> Table:
    table = EVIDENCE.features(np.array(finished))
    return dict(zip(FEATURES, table.T.tolist(), strict=True))


def test_before_anything_has_run_every_clause_counts_in_full() -> None:
    assert left(False, False, False) == {
        "words_whole": [0.1, 0.0, 1.0], "words_clause": [1.0, 0.5, 1.0], "words_left": [1.0, 0.5, 1.0],
        "meaning_whole": [0.2, 0.0, 0.9], "meaning_clause": [0.8, 0.6, 0.4], "meaning_left": [0.8, 0.6, 0.4],
        "both_left": pytest.approx([math.sqrt(0.8), math.sqrt(0.125), math.sqrt(0.4)]), "first_left": [1.0, 0.5, 0.1],
        "operation": [0.3, 0.0, 0.8], "provider_words": [0.4, 0.0, 0.7], "provider_meaning": [0.5, 0.0, 0.6],
        "literal": [0.6, 0.0, 0.5],
    }  # fmt: skip


def test_a_clause_counts_less_by_the_square_of_how_far_it_is_answered() -> None:
    values, before = left(True, False, False), left(False, False, False)
    assert values["words_left"] == pytest.approx([0, 0.96 * 0.2, 0.96])
    assert values["meaning_left"] == pytest.approx([0, 0.96 * 0.6, 0.96 * 0.4])
    assert values["both_left"] == pytest.approx([0, math.sqrt(0.96 * 0.2 * 0.6), math.sqrt(0.96 * 0.4)])
    assert values["first_left"] == [0.2, 0.4, 1.0]
    assert all(values[name] == before[name] for name in values if not name.endswith("_left"))
    # The second entry leaves 0.75 of the first clause and 0.84 of the second: both are open.
    assert left(False, True, False)["first_left"] == [1.0, 0.5, 0.1]
    assert left(False, True, False)["words_left"] == pytest.approx([0.75, 0.375, 0.84])


def test_once_every_clause_is_answered_nothing_is_left() -> None:
    values = left(True, False, True)
    assert [values[name] for name in values if name.endswith("_left")] == [[0.0] * 3] * 4


# --- a catalog --------------------------------------------------------------------------------------------------------


class Pinned:
    """An encoder that knows the direction of a few texts; all others have one of their own."""

    name, dimensions = "pinned", 2

    def __init__(self, **cosines: float) -> None:
        self._cosines = cosines
        self.identity = str(cosines)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        along = np.array([next((v for k, v in self._cosines.items() if k in text), 0.0) for text in texts])
        return np.stack([along, np.sqrt(1 - along * along)], axis=1)


def shop(number: int) -> list[Entry]:
    """Endpoints of two providers: bank.pay, mail.send and as many more of mail as make up the number."""
    made = [
        endpoint("bank.pay_bill", "", [text("amount")], []),
        endpoint("mail.send_parcel", "", [ITEM], []),
        *(endpoint(f"mail.other_{chr(97 + extra)}", "", [text("name")], []) for extra in range(number - 2)),
    ]
    return sorted((Entry(item.route_id, item.description, item) for item in made), key=lambda entry: entry.id)


def said(query: str, entries: Sequence[Entry], **cosines: float) -> dict[str, dict[str, float]]:
    """The features of a request by name and route, where they are not 0."""
    encoder = Pinned(**{"query": 1.0, **cosines})
    requests = Requests(shared_lexicon(), QueryVectors(encoder))
    read = Relevance(entries, Contracts(entries), encoder, requests).read(query)
    table = read.features(np.zeros(len(entries), np.bool_))
    return {
        name: {entry.id: round(value, 6) for entry, value in zip(entries, column, strict=True) if value}
        for name, column in zip(FEATURES, table.T.tolist(), strict=True)
    }


def test_a_meaning_counts_by_how_far_it_stands_out() -> None:
    # One cosine of 1 among three of 0: 0.75 above the mean, with a deviation of root 3 / 4.
    values = said("query", shop(4), parcel=1.0)
    assert values["meaning_whole"] == {"mail.send_parcel": round(math.sqrt(3) / 4, 6)}
    assert said("query", shop(4))["meaning_whole"] == {}
    # Among 26 it stands five deviations out, and no more than four count.
    assert said("query", shop(26), parcel=1.0)["meaning_whole"] == {"mail.send_parcel": 1.0}


def test_a_provider_means_what_its_best_entry_does() -> None:
    values = said("query", shop(4), parcel=1.0)["provider_meaning"]
    assert values == dict.fromkeys(("mail.send_parcel", "mail.other_a", "mail.other_b"), 0.25)


def test_words_of_the_whole_and_of_each_clause() -> None:
    values = said("Pay a bill, then send a parcel and parcel", shop(4))
    assert values["words_clause"] == {"bank.pay_bill": 1.0, "mail.send_parcel": 1.0}
    assert sorted(values["words_whole"]) == ["bank.pay_bill", "mail.send_parcel"]
    assert max(values["words_whole"].values()) == 1.0
    assert said("nothing of the kind", shop(4))["words_whole"] == {}


def test_a_clause_is_answered_by_words_and_meaning_in_equal_parts_and_its_best_entry_in_full() -> None:
    values = said("query parcel", shop(4), pay=1.0)["first_left"]
    assert values == {"mail.send_parcel": 1.0, "bank.pay_bill": round(math.sqrt(3) / 4, 6)}


def test_the_share_of_an_operation_that_is_said() -> None:
    assert said("send a parcel", shop(4))["operation"]["mail.send_parcel"] == 1.0
    # Both words are in one entry alone, so each is half.
    assert said("the parcel", shop(4))["operation"]["mail.send_parcel"] == 0.5
    assert said("the amount", shop(4))["operation"] == {}


def test_the_words_of_a_provider_are_those_of_all_its_entries() -> None:
    values = said("the bank", shop(4))["provider_words"]
    assert values == {"bank.pay_bill": 1.0}
    assert set(said("parcel", shop(4))["provider_words"]) == {"mail.send_parcel", "mail.other_a", "mail.other_b"}


def test_an_identifier_is_like_an_example_by_its_form_and_its_letters() -> None:
    assert said("ITM-205", shop(3))["literal"] == {"mail.send_parcel": 1.0}
    assert said("QQQ-205", shop(3))["literal"] == {"mail.send_parcel": 0.5}
    assert said("AB/7x9 and ITM-205", shop(3))["literal"] == {"mail.send_parcel": 1.0}
    assert said("AB/7x9", shop(3))["literal"] == said("parcel", shop(3))["literal"] == {}


def test_a_word_counts_most_in_an_operation_then_provider_description_field() -> None:
    field: Field = {"name": "lamp", "type": "string"}
    items = {
        "x.lamp": endpoint("x.lamp", "", [], []), "lamp.x": endpoint("lamp.x", "", [], []),
        "x.described": endpoint("x.described", "lamp", [], []), "x.taking": endpoint("x.taking", "", [field], []),
    }  # fmt: skip
    entries = [Entry(route, item.description, item) for route, item in sorted(items.items())]
    values = said("lamp", entries)["words_whole"]
    assert sorted(values, key=lambda route: -values[route]) == ["x.lamp", "lamp.x", "x.described", "x.taking"]
    assert len(set(values.values())) == 4
