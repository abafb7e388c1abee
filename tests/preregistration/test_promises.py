"""The lock: every difference from what was promised is reported; rewrites, release, and which conditions may run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preregistration import protocol
from preregistration.lock import (
    BEHAVIOUR,
    FILES,
    Amendment,
    Comparison,
    Lock,
    Release,
    Rewrite,
    compare,
    flatten,
    read_lock,
    require_as_locked,
    rewritten,
    scoring_refusal,
)
from preregistration.names import SR_CONDITIONS
from schemarouter.errors import InvalidRunError

HERE: dict[str, str] = {
    "agent": "reference", "catalogs.100": "a" * 64, "retriever": "typed", "retriever_behaviour": "r" * 64,
    "agent_behaviour": "g" * 64, "surface": "c" * 64, "surface/frozen/x/en.json#frz-en-01.key": "k" * 64,
}  # fmt: skip
RELEASE = Release(kind="release", date="2026-11-30", commit="c0ffee", reason="the audit is done")
AMENDMENT = Amendment(
    kind="amendment", date="2026-11-29", commit="abad1dea", reason="faster", fingerprints={"retriever": "typed2"}
)


def lock(fingerprints: dict[str, str] | None = None, *history: Amendment | Rewrite | Release) -> Lock:
    held = HERE if fingerprints is None else fingerprints
    return Lock(
        schema_version=2, surface="frozen", confirmatory=True, date="2026-11-29", commit="beef", fingerprints=held,
        history=history,
    )  # fmt: skip


def stored(folder: Path, held: Lock) -> Path:
    (folder / FILES["frozen"]).write_bytes(orjson.dumps(held.model_dump(mode="json")))
    return folder


def test_nested_values_are_flattened_to_one_level_of_names() -> None:
    assert flatten({"a": {"b": {"c": 1}}, "d": "x"}) == {"a.b.c": "1", "d": "x"}


def test_the_same_fingerprints_hold_under_every_name() -> None:
    rows = compare(lock(), HERE)
    assert [row.name for row in rows] == sorted(HERE)
    assert all(row.holds for row in rows)
    require_as_locked(lock(), HERE)


@pytest.mark.parametrize("name", sorted(HERE))
def test_each_single_difference_is_reported_with_both_sides(name: str) -> None:
    promised = {**HERE, name: "other"}
    broken = [row for row in compare(lock(promised), HERE) if not row.holds]
    assert broken == [Comparison(name, "other", HERE[name])]
    with pytest.raises(InvalidRunError, match="not as it was locked") as caught:
        require_as_locked(lock(promised), HERE)
    assert f"{name}: locked other, here {HERE[name]}" in str(caught.value)


def test_what_only_one_side_has_does_not_hold() -> None:
    promised = {n: v for n, v in HERE.items() if n != "surface"}
    rows = {row.name: row for row in compare(lock({**promised, "tokenizer": "t"}), HERE)}
    assert (rows["surface"].promised, rows["surface"].holds) == (None, False)
    assert (rows["tokenizer"].actual, rows["tokenizer"].holds) == (None, False)
    assert not Comparison("x", None, None).holds


def test_behaviour_is_compared_where_it_was_read() -> None:
    cheap = {name: value for name, value in HERE.items() if name not in BEHAVIOUR}
    require_as_locked(lock(), cheap)
    with pytest.raises(InvalidRunError, match="agent_behaviour"):
        require_as_locked(lock({**HERE, "agent_behaviour": "other"}), HERE)


def test_many_differences_are_cut_to_ten_and_counted() -> None:
    with pytest.raises(InvalidRunError, match="and 15 more"):
        require_as_locked(lock({f"n{i:02}": "x" for i in range(25)}), {f"n{i:02}": "y" for i in range(25)})


def test_a_lock_is_read_back_and_its_absence_is_no_lock(tmp_path: Path) -> None:
    assert read_lock("frozen", tmp_path) is None
    held = rewritten(lock(None, AMENDMENT), HERE, date="d", commit="c", reason="r")
    for kept in (held, lock(None, RELEASE)):
        assert read_lock("frozen", stored(tmp_path, kept)) == kept


def test_the_lock_of_another_surface_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, lock().model_copy(update={"surface": "development"}))
    with pytest.raises(InvalidRunError, match="is the lock of the development surface"):
        read_lock("frozen", tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"{}", b'{"schema_version":1,"surface":"frozen","confirmatory":true,"fingerprints":{}}',
     b'{"schema_version":2,"surface":"frozen","confirmatory":1,"fingerprints":{}}',
     b'{"schema_version":2,"surface":"frozen","confirmatory":true,"fingerprints":{},"history":[{"kind":"gift"}]}',
     b'{"schema_version":2,"surface":"frozen","confirmatory":true,"fingerprints":{},"history":[{"kind":"rewrite",'
     b'"date":"d","commit":"c","reason":"r"}]}'],
)  # fmt: skip
def test_a_lock_that_cannot_be_read_is_refused_and_never_taken_for_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILES["frozen"]).write_bytes(content)
    with pytest.raises(InvalidRunError, match=r"^lock\.json: "):
        read_lock("frozen", tmp_path)


# --- rewrites ---------------------------------------------------------------------------------------------------------


def test_a_rewrite_locks_what_is_here_and_keeps_the_old_lock_whole() -> None:
    now = {**{name: value for name, value in HERE.items() if name != "surface"}, "retriever": "typed3", "new": "n"}
    old = lock(None, AMENDMENT)
    made = rewritten(old, now, date="2026-12-01", commit="beef", reason="tasks mended")
    require_as_locked(made, now)
    assert (made.date, made.commit, made.fingerprints, made.released) == ("2026-12-01", "beef", now, False)
    (event,) = made.history
    assert isinstance(event, Rewrite)
    assert (event.date, event.commit, event.reason, event.superseded) == ("2026-12-01", "beef", "tasks mended", old)
    again = rewritten(made, HERE, date="2026-12-02", commit="f00d", reason="and back")
    assert [item.reason for item in again.events()] == ["faster", "tasks mended", "and back"]
    assert len({old.digest, made.digest, again.digest, lock().digest}) == 4


def test_a_released_lock_and_one_that_is_free_to_use_are_not_rewritten() -> None:
    with pytest.raises(InvalidRunError, match=r"lock is released.*rewritten only before its release"):
        rewritten(lock(None, RELEASE), HERE, date="d", commit="c", reason="r")
    free = Lock(schema_version=2, surface="development", confirmatory=False, fingerprints=HERE)
    with pytest.raises(InvalidRunError, match="schemarouter lock write --surface development"):
        rewritten(free, HERE, date="d", commit="c", reason="r")


def test_an_amendment_of_an_older_lock_still_counts() -> None:
    require_as_locked(lock(None, AMENDMENT), {**HERE, "retriever": "typed2"})
    with pytest.raises(InvalidRunError, match="retriever: locked typed2, here typed"):
        require_as_locked(lock(None, AMENDMENT), HERE)


# --- the digest -------------------------------------------------------------------------------------------------------

words = st.text(min_size=1, max_size=6)
prints = st.dictionaries(words, words, min_size=1, max_size=3)
amendments = st.builds(
    Amendment, kind=st.just("amendment"), date=words, commit=words, reason=words, fingerprints=prints
)


@st.composite
def histories(draw: st.DrawFn) -> Lock:
    """A lock that was amended and rewritten some times."""
    held = lock(draw(prints), *draw(st.lists(amendments, max_size=2)))
    for _ in range(draw(st.integers(0, 3))):
        held = rewritten(held, draw(prints), date=draw(words), commit=draw(words), reason=draw(words))
    return held


def paths_of(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value of a document that could be another one."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from paths_of(inner, (*at, key))
        elif key not in ("kind", "schema_version"):
            yield (*at, key)


@given(held=histories(), data=st.data())
def test_the_digest_changes_with_anything_of_a_lock_or_of_what_it_superseded(held: Lock, data: st.DataObject) -> None:
    document = held.model_dump(mode="json")
    *path, last = data.draw(st.sampled_from(list(paths_of(document))))
    at = document
    for key in path:
        at = at[key]
    swapped = {True: False, False: True, "frozen": "development"}
    at[last] = swapped.get(at[last], f"{at[last]}'")
    altered = Lock.model_validate(document)
    assert altered.digest != held.digest
    assert Lock.model_validate(held.model_dump(mode="json")).digest == held.digest


@given(histories())
def test_the_digest_can_be_published_before_the_release_and_compared_with_the_lock_after_it(held: Lock) -> None:
    released = held.model_copy(update={"history": (*held.history, RELEASE)})
    assert released.released and released.digest == held.digest
    if held.history:
        shortened = held.model_copy(update={"history": held.history[1:]})
        assert shortened.digest != held.digest


# --- scoring ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", SR_CONDITIONS)
def test_no_condition_that_retrieves_runs_before_the_lock_and_the_release(condition: str, tmp_path: Path) -> None:
    assert "is not locked" in scoring_refusal("frozen", ["FULL", condition], tmp_path)
    stored(tmp_path, lock())
    refusal = scoring_refusal("frozen", [condition], tmp_path)
    assert "not released" in refusal and lock().digest[:16] in refusal
    stored(tmp_path, lock(None, RELEASE))
    assert scoring_refusal("frozen", ["FULL", condition], tmp_path) == ""


def test_the_development_surface_and_the_conditions_that_rank_nothing_are_free(tmp_path: Path) -> None:
    assert scoring_refusal("development", SR_CONDITIONS, tmp_path) == ""
    assert scoring_refusal("frozen", ["FULL", "ORACLE"], tmp_path) == ""


# --- confirmatory or not ----------------------------------------------------------------------------------------------


def test_a_lock_that_calls_the_surface_otherwise_than_its_protocol_does_not_hold() -> None:
    name = f"preregistration/{protocol.FILES['frozen']}#confirmatory"
    here = {**HERE, name: "True"}
    require_as_locked(lock(here), here)
    loose = lock(here).model_copy(update={"confirmatory": False})
    assert [row for row in compare(loose, here) if not row.holds] == [Comparison("confirmatory", "False", "True")]
    with pytest.raises(InvalidRunError, match="confirmatory: locked False, here True"):
        require_as_locked(loose, here)
