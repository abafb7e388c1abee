"""Vectors on disk: believed only when whole and meant, never in the way; vectors of queries in memory."""

from __future__ import annotations

import hashlib
import io
import os
import pwd
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.vectors import QueryVectors, entry_vectors
from tests.retrieval.stubs import StubEncoder, dense
from tests.strategies import LAWS

TEXTS = ["lease", "invoice", "설비 하중", ""]
text_lists = st.lists(st.sampled_from(["a", "b", "ab", "", "설비", "a b"]) | st.text(max_size=3), max_size=4)
encoders = st.builds(StubEncoder, st.sampled_from(["stub", "other"]), st.sampled_from(["1", "2"]))


def fresh(encoder: StubEncoder, texts: list[str]) -> np.ndarray[Any, Any]:
    return StubEncoder(encoder.name, encoder.identity).encode(texts).astype(np.float32)


def stored(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def signed(body: bytes, path: Path) -> bytes:
    return body + hashlib.sha256(path.name.encode() + body).digest()


def npy(array: np.ndarray[Any, Any], *, pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros(3))
    return buffer.getvalue()


def test_vectors_are_computed_once_and_read_back_to_the_bit(tmp_path: Path) -> None:
    first = StubEncoder()
    computed = entry_vectors(first, TEXTS, tmp_path)
    again = StubEncoder()
    read = entry_vectors(again, TEXTS, tmp_path)
    assert first.asked == TEXTS
    assert again.asked == []
    assert read.dtype == computed.dtype == np.float32
    assert read.tobytes() == computed.tobytes() == fresh(first, TEXTS).tobytes()
    assert len(stored(tmp_path)) == 1


@LAWS
@given(asked=st.lists(st.tuples(encoders, text_lists), min_size=2, max_size=5))
def test_another_text_order_or_encoder_never_meets_an_old_entry(asked: list[tuple[StubEncoder, list[str]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for encoder, texts in asked:
            np.testing.assert_array_equal(entry_vectors(encoder, texts, Path(folder)), fresh(encoder, texts))


@pytest.mark.parametrize(
    ("encoder", "texts"),
    [
        (StubEncoder(identity="2"), TEXTS),
        (StubEncoder(name="stab"), TEXTS),
        (StubEncoder(), [*TEXTS[:3], " "]),
        (StubEncoder(), TEXTS[::-1]),
        (StubEncoder(), TEXTS[:3]),
        (StubEncoder(), ["leaseinvoice", "", "설비 하중", ""]),
    ],
)
def test_whatever_decides_a_vector_decides_the_file(tmp_path: Path, encoder: StubEncoder, texts: list[str]) -> None:
    entry_vectors(StubEncoder(), TEXTS, tmp_path)
    entry_vectors(encoder, texts, tmp_path)
    assert encoder.asked == texts
    assert len(stored(tmp_path)) == 2


class Rewritten(StubEncoder):
    """The same encoder by name and identity, written elsewhere."""


def asked_for(encoder: StubEncoder, folder: Path) -> list[str]:
    """What an encoder is asked for, where the entries' and a query's vectors are wanted."""
    entry_vectors(encoder, TEXTS, folder)
    QueryVectors(encoder, folder=folder).get("a")
    return encoder.asked


def test_the_vectors_of_other_code_are_not_taken(tmp_path: Path) -> None:
    assert asked_for(StubEncoder(), tmp_path) == [*TEXTS, "a"]
    assert asked_for(Rewritten(), tmp_path) == [*TEXTS, "a"]
    assert asked_for(Rewritten(), tmp_path) == asked_for(StubEncoder(), tmp_path) == []


def test_the_vectors_of_a_machine_that_rounds_otherwise_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for(StubEncoder(), tmp_path)
    monkeypatch.setattr("schemarouter.retrieval.vectors._arithmetic", lambda: "other")
    assert asked_for(StubEncoder(), tmp_path) == [*TEXTS, "a"]


@LAWS
@given(cut=st.integers(0, 10**6), flip=st.none() | st.tuples(st.integers(0, 10**6), st.integers(1, 255)))
def test_a_torn_or_altered_file_is_computed_again_and_put_right(cut: int, flip: tuple[int, int] | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        entry_vectors(StubEncoder(), TEXTS, Path(folder))
        (path,) = stored(Path(folder))
        whole = path.read_bytes()
        damaged = bytearray(whole if flip else whole[: cut % len(whole)])
        if flip:
            damaged[flip[0] % len(whole)] ^= flip[1]
        path.write_bytes(damaged)
        encoder = StubEncoder()
        np.testing.assert_array_equal(entry_vectors(encoder, TEXTS, Path(folder)), fresh(encoder, TEXTS))
        assert encoder.asked == TEXTS
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "body",
    [
        npy(np.zeros((4, 7), dtype=np.float32)),
        npy(np.zeros((3, 8), dtype=np.float32)),
        npy(np.zeros((4, 8), dtype=np.float64)),
        npy(np.array([[None] * 8] * 4), pickled=True),
        b"not an array",
        b"",
        npz(),
        npy(np.zeros((4, 8), dtype=np.float32, order="F")),
        npy(np.zeros((4, 8), dtype=np.float32)) + b"x",
        npy(np.zeros((4, 8), dtype=np.float32))[:-1],
        b"PK\x03\x04 torn",
    ],
    ids=["width", "rows", "float64", "pickle", "text", "empty", "npz", "fortran", "longer", "shorter", "torn-zip"],
)
def test_a_file_of_something_else_is_not_believed_even_with_a_right_digest(tmp_path: Path, body: bytes) -> None:
    entry_vectors(StubEncoder(), TEXTS, tmp_path)
    (path,) = stored(tmp_path)
    path.write_bytes(signed(body, path))
    encoder = StubEncoder()
    np.testing.assert_array_equal(entry_vectors(encoder, TEXTS, tmp_path), fresh(encoder, TEXTS))
    assert encoder.asked == TEXTS


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise PermissionError(13, "no")


def test_a_folder_that_cannot_be_written_costs_time_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("x")
    monkeypatch.setattr("schemarouter.files.os.open", refuse)
    for folder in (in_the_way, in_the_way / "below", tmp_path / "new"):
        for _ in range(2):
            encoder = StubEncoder()
            np.testing.assert_array_equal(entry_vectors(encoder, TEXTS, folder), fresh(encoder, TEXTS))
            assert encoder.asked == TEXTS
    assert in_the_way.read_text() == "x"


def test_a_write_that_fails_leaves_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemarouter.files.os.replace", refuse)
    np.testing.assert_array_equal(entry_vectors(StubEncoder(), TEXTS, tmp_path), fresh(StubEncoder(), TEXTS))
    assert stored(tmp_path) == []


def test_a_full_disk_leaves_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemarouter.files.write_all", refuse)
    np.testing.assert_array_equal(entry_vectors(StubEncoder(), TEXTS, tmp_path), fresh(StubEncoder(), TEXTS))
    assert stored(tmp_path) == []


@pytest.mark.parametrize("texts", [TEXTS, []])
def test_a_file_is_an_npy_file_with_its_digest(tmp_path: Path, texts: list[str]) -> None:
    entry_vectors(StubEncoder(), texts, tmp_path)
    (path,) = stored(tmp_path)
    assert path.read_bytes() == signed(npy(fresh(StubEncoder(), texts)), path)
    again = entry_vectors(StubEncoder(), texts, tmp_path)
    assert again.shape == (len(texts), StubEncoder.dimensions)
    assert again.flags.writeable


def test_a_file_under_the_name_of_another_is_computed_anew(tmp_path: Path) -> None:
    entry_vectors(StubEncoder(), ["a"], tmp_path)
    (one,) = stored(tmp_path)
    entry_vectors(StubEncoder(), ["b"], tmp_path)
    (other,) = (path for path in stored(tmp_path) if path != one)
    other.write_bytes(one.read_bytes())
    assert entry_vectors(StubEncoder(), ["b"], tmp_path).tobytes() == fresh(StubEncoder(), ["b"]).tobytes()


def test_a_pipe_instead_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    entry_vectors(StubEncoder(), TEXTS, tmp_path)
    (path,) = stored(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert len(entry_vectors(StubEncoder(), TEXTS, tmp_path)) == len(TEXTS)


def test_entry_vectors_go_to_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEMAROUTER_CACHE", str(tmp_path))
    entry_vectors(StubEncoder(), TEXTS)
    assert [path.parent for path in stored(tmp_path)] == [tmp_path / "vectors"]


def nobody(uid: int) -> Any:
    raise KeyError(uid)


def test_a_user_without_a_home_ranks_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SCHEMAROUTER_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert len(dense([Entry("a", "lease")]).rank("lease", k=1).items) == 1


def test_a_query_is_encoded_once_and_afterwards_read_from_memory_or_disk(tmp_path: Path) -> None:
    encoder = StubEncoder()
    vectors = QueryVectors(encoder, limit=2, folder=tmp_path)
    for text in ("a", "bb", "a", "bb", "c", "a"):
        found = vectors.get(text)
        np.testing.assert_array_equal(found, StubEncoder().encode([text])[0])
        np.testing.assert_array_equal(QueryVectors(encoder, folder=tmp_path).get(text), found)
    assert encoder.asked == ["a", "bb", "c"]


class Unloaded(StubEncoder):
    """An encoder that must not be asked for anything but its name."""

    # As if it were written where the stub is: what that encoded is its own.
    __module__ = StubEncoder.__module__

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        raise AssertionError(f"encoded {texts}")


@LAWS
@given(texts=st.lists(st.text(st.characters(exclude_categories=()), max_size=4), max_size=6))
def test_what_an_earlier_process_read_needs_no_encoder(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first = QueryVectors(StubEncoder(), folder=Path(folder))
        made = [first.get(text) for text in texts]
        again = QueryVectors(Unloaded(), folder=Path(folder))
        for text, was in zip(texts, made, strict=True):
            assert again.get(text).tobytes() == was.tobytes()


def test_a_query_vector_of_another_encoder_or_a_torn_file_is_not_taken(tmp_path: Path) -> None:
    encoder = StubEncoder()
    QueryVectors(encoder, folder=tmp_path).get("a")
    (path,) = stored(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    QueryVectors(encoder, folder=tmp_path).get("a")
    assert encoder.asked == ["a", "a"]
    other = StubEncoder(identity="2")
    QueryVectors(other, folder=tmp_path).get("a")
    assert other.asked == ["a"]


def test_a_new_file_replaces_an_old_one_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[tuple[Path, Path]] = []
    real = os.replace

    def watch(source: str, target: Path) -> None:
        moves.append((Path(source), target))
        assert not target.exists()
        real(source, target)

    monkeypatch.setattr("schemarouter.files.os.replace", watch)
    entry_vectors(StubEncoder(), TEXTS, tmp_path)
    ((source, target),) = moves
    assert source.parent == target.parent
    assert stored(tmp_path) == [target]
