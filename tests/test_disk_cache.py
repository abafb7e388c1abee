"""What is kept of texts: believed only when whole and meant, shared by processes, never in the way."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.disk_cache import DIGEST_BYTES, DiskCache, cache_folder, no_cache
from tests.strategies import LAWS

SIZE = 3
RECORD = SIZE + 2 * DIGEST_BYTES
any_text = st.text(st.characters(exclude_categories=()), max_size=4)
values = st.binary(min_size=SIZE, max_size=SIZE)


def kept(folder: Path, identity: object = "one", kind: str = "counts", records: int = 100) -> DiskCache:
    return DiskCache(kind, identity, SIZE, folder=folder, max_bytes=records * RECORD)


def stored(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def fill(folder: Path, texts: str) -> Path:
    """A file with a record a letter, each holding its letter."""
    store = kept(folder)
    for text in texts:
        store.put(text, text.encode() * SIZE)
    (path,) = stored(folder)
    return path


@LAWS
@given(pairs=st.lists(st.tuples(any_text, values), max_size=8))
def test_the_first_value_of_a_text_is_kept_in_memory_and_on_disk(pairs: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = kept(Path(folder))
        expected: dict[str, bytes] = {}
        for text, value in pairs:
            assert store.get(text) == expected.get(text)
            expected.setdefault(text, value)
            store.put(text, value)
        for one in (store, kept(Path(folder))):
            assert {text: one.get(text) for text in expected} == expected
            assert one.get("not among them") is None
        assert sum(path.stat().st_size for path in stored(Path(folder))) == len(expected) * RECORD


@pytest.mark.parametrize(("identity", "kind"), [("two", "counts"), ("one", "vectors"), (["one"], "counts")])
def test_another_identity_or_kind_never_meets_a_value(tmp_path: Path, identity: object, kind: str) -> None:
    kept(tmp_path).put("a", b"abc")
    other = kept(tmp_path, identity, kind)
    assert other.get("a") is None
    other.put("a", b"xyz")
    assert kept(tmp_path).get("a") == b"abc"
    assert len(stored(tmp_path)) == 2


def test_a_file_renamed_to_another_is_not_believed(tmp_path: Path) -> None:
    kept(tmp_path).put("a", b"abc")
    (own,) = stored(tmp_path)
    kept(tmp_path, "two").put("b", b"xyz")
    (other,) = set(stored(tmp_path)) - {own}
    own.replace(other)
    assert kept(tmp_path, "two").get("a") is None


@LAWS
@given(cut=st.integers(0, 10**6), flip=st.none() | st.tuples(st.integers(0, 10**6), st.integers(1, 255)))
def test_a_torn_or_altered_record_is_not_believed_the_others_are(cut: int, flip: tuple[int, int] | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = fill(Path(folder), "abcd")
        whole = path.read_bytes()
        offset = (flip[0] if flip else cut) % len(whole)
        damaged = bytearray(whole if flip else whole[:offset])
        if flip:
            damaged[offset] ^= flip[1]
        path.write_bytes(damaged)
        hit = offset // RECORD
        sound = [letter for number, letter in enumerate("abcd") if (number != hit if flip else number < hit)]
        again = kept(Path(folder))
        assert [letter for letter in "abcd" if again.get(letter)] == sound
        assert all(again.get(letter) == letter.encode() * SIZE for letter in sound)
        assert path.stat().st_size == len(sound) * RECORD
        for letter in "abcde":
            again.put(letter, letter.encode() * SIZE)
        after = kept(Path(folder))
        assert [after.get(letter) for letter in "abcde"] == [letter.encode() * SIZE for letter in "abcde"]


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    one, other = kept(tmp_path), kept(tmp_path)
    assert one.get("a") is other.get("a") is None
    for text in "abc":
        one.put(text, b"one")
        other.put(text.upper(), b"two")
    other.put("a", b"one")
    again = kept(tmp_path)
    assert [again.get(text) for text in "abc"] == [b"one"] * 3
    assert [again.get(text) for text in "ABC"] == [b"two"] * 3


def write_many(folder: str, name: str) -> None:
    store = DiskCache("counts", "one", SIZE, folder=Path(folder))
    for number in range(200):
        store.put(f"{name}{number}", b"abc")


def test_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    fill(tmp_path, "a")
    writers = [context.Process(target=write_many, args=(str(tmp_path), name)) for name in "xyz"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    again = DiskCache("counts", "one", SIZE, folder=tmp_path)
    assert all(again.get(f"{name}{number}") == b"abc" for name in "xyz" for number in range(200))


def test_a_full_file_takes_nothing_more_and_is_cut_to_its_newer_half(tmp_path: Path) -> None:
    store = kept(tmp_path, records=4)
    for text in "abcdef":
        store.put(text, text.encode() * SIZE)
    assert [text for text in "abcdef" if store.get(text)] == list("abcd")
    again = kept(tmp_path, records=4)
    assert [text for text in "abcdef" if again.get(text)] == list("cd")
    (path,) = stored(tmp_path)
    assert path.stat().st_size == 2 * RECORD
    again.put("g", b"ggg")
    assert [text for text in "abcdefg" if kept(tmp_path, records=4).get(text)] == list("cdg")


@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_a_file_that_many_writers_made_too_large_is_cut_to_the_newest(
    torn: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fill(tmp_path, "abcdefghij")
    path.write_bytes(path.read_bytes() + torn)
    monkeypatch.setattr("schemarouter.disk_cache._MAX_BYTES", 2 * RECORD)
    # Four records are read of a file of ten.
    assert [text for text in "abcdefghij" if kept(tmp_path).get(text)] == list("ghij")
    assert path.stat().st_size == 4 * RECORD
    kept(tmp_path).put("k", b"kkk")
    assert path.stat().st_size == 5 * RECORD


def test_a_folder_that_cannot_be_written_or_read_costs_time_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("x")
    for folder in (in_the_way, in_the_way / "below"):
        store = kept(folder)
        store.put("a", b"abc")
        assert store.get("a") == b"abc"
        assert kept(folder).get("a") is None
    assert in_the_way.read_text() == "x"
    path = fill(tmp_path / "new", "a")
    path.write_bytes(path.read_bytes() + b"torn")

    def refuse(*args: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "replace", refuse)
    assert kept(tmp_path / "new").get("a") == b"aaa"
    assert stored(tmp_path / "new") == [path]


def test_a_user_without_a_home_keeps_things_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemarouter.disk_cache.cache_folder", lambda: None)
    store = DiskCache("counts", "one", SIZE)
    store.put("a", b"abc")
    assert store.get("a") == b"abc"
    assert DiskCache("counts", "one", SIZE).get("a") is None


def test_a_value_of_another_size_is_a_mistake_of_the_code(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 bytes, not 4"):
        kept(tmp_path).put("a", b"abcd")
    assert stored(tmp_path) == []


def test_the_folder_is_the_chosen_one_else_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEMAROUTER_CACHE", "/chosen")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder() == Path("/chosen")
    monkeypatch.setenv("SCHEMAROUTER_CACHE", "")
    assert cache_folder() == Path("/xdg/schemarouter-research")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/somebody/.cache/schemarouter-research")


def test_a_pipe_or_a_file_without_end_instead_of_the_store_costs_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskCache("counts", "x", 1, folder=tmp_path)
    store.put("a", b"1")
    (path,) = (tmp_path / "counts").iterdir()
    monkeypatch.setattr("schemarouter.disk_cache._MAX_BYTES", 1000)
    path.write_bytes(path.read_bytes() + bytes(3000))
    assert DiskCache("counts", "x", 1, folder=tmp_path).get("a") is None
    path.unlink()
    os.mkfifo(path)
    again = DiskCache("counts", "x", 1, folder=tmp_path)
    assert again.get("a") is None
    again.put("a", b"2")
    assert again.get("a") == b"2"


def test_no_cache_is_an_empty_folder_within_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (str(tmp_path), None):
        if before is None:
            monkeypatch.delenv("SCHEMAROUTER_CACHE")
        else:
            monkeypatch.setenv("SCHEMAROUTER_CACHE", before)
        with no_cache():
            inside = cache_folder()
            assert inside is not None and inside != tmp_path and [*inside.iterdir()] == []
            DiskCache("counts", "x", 1).put("a", b"1")
        assert not inside.exists() and os.environ.get("SCHEMAROUTER_CACHE") == before
