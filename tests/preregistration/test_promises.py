"""The lock: what was promised beside what is here, every difference told; amendments, release, and who may score."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from preregistration import protocol
from preregistration.lock import (
    BEHAVIOUR,
    FILES,
    Comparison,
    Lock,
    LockEvent,
    amended,
    compare,
    flatten,
    read_lock,
    require_as_locked,
    scoring_refusal,
)
from schemarouter.errors import InvalidRunError

HERE: dict[str, str] = {
    "agent": "reference", "catalogs.100": "a" * 64, "retriever": "typed", "retriever_behaviour": "r" * 64,
    "agent_behaviour": "g" * 64, "surface": "c" * 64, "surface/tasks/x/en.json#frz-en-01.key": "k" * 64,
}  # fmt: skip
RELEASE = LockEvent(kind="release", date="2026-11-30", commit="c0ffee", reason="the audit is done")


def lock(fingerprints: dict[str, str] | None = None, *history: LockEvent) -> Lock:
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
def test_each_single_difference_is_told_with_both_sides(name: str) -> None:
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


def test_the_digest_is_of_what_was_promised_and_not_of_what_was_done_since() -> None:
    assert lock().digest == lock(None, RELEASE).digest
    assert lock().digest != lock({**HERE, "surface": "d" * 64}).digest
    assert lock().digest != lock().model_copy(update={"date": "2026-11-28"}).digest


def test_a_lock_is_read_back_and_its_absence_is_no_lock(tmp_path: Path) -> None:
    assert read_lock("frozen", tmp_path) is None
    assert read_lock("frozen", stored(tmp_path, lock(None, RELEASE))) == lock(None, RELEASE)


def test_the_lock_of_another_surface_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, lock().model_copy(update={"surface": "development"}))
    with pytest.raises(InvalidRunError, match="is the lock of the development surface"):
        read_lock("frozen", tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"{}", b'{"schema_version":1,"surface":"frozen","confirmatory":true,"fingerprints":{}}',
     b'{"schema_version":2,"surface":"frozen","confirmatory":1,"fingerprints":{}}'],
)  # fmt: skip
def test_a_lock_that_cannot_be_read_is_refused_and_never_taken_for_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILES["frozen"]).write_bytes(content)
    with pytest.raises(InvalidRunError, match=r"^lock\.json: "):
        read_lock("frozen", tmp_path)


# --- amendments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["retriever", "retriever_behaviour", "agent"])
def test_an_amendment_supersedes_the_retriever_s_and_the_agent_s_part(name: str) -> None:
    now = {**HERE, name: "new"}
    held = amended(lock(), now, date="2026-12-01", commit="beef", reason="the same rankings, faster")
    require_as_locked(held, now)
    assert held.digest == lock().digest
    assert held.fingerprints == HERE
    assert held.history[-1].fingerprints == {name: "new"}


@pytest.mark.parametrize("name", ["surface", "catalogs.100", "surface/tasks/x/en.json#frz-en-01.key"])
def test_surface_and_catalogs_stay_as_locked(name: str) -> None:
    with pytest.raises(InvalidRunError, match="stay as locked: " + name):
        amended(lock(), {**HERE, name: "new"}, date="d", commit="c", reason="r")


def test_nothing_is_amended_after_the_release_or_without_need() -> None:
    with pytest.raises(InvalidRunError, match="released"):
        amended(lock(None, RELEASE), {**HERE, "agent": "new"}, date="d", commit="c", reason="r")
    with pytest.raises(InvalidRunError, match="nothing to amend"):
        amended(lock(), HERE, date="d", commit="c", reason="r")


# --- scoring ----------------------------------------------------------------------------------------------------------

ARMS = ["SR-5-STATIC", "SR-PROGRESSIVE-STATIC", "SR-5-STATE-AWARE"]


@pytest.mark.parametrize("arm", ARMS)
def test_no_arm_that_retrieves_runs_before_the_lock_and_the_release(arm: str, tmp_path: Path) -> None:
    assert "is not locked" in scoring_refusal("frozen", ["FULL", arm], tmp_path)
    stored(tmp_path, lock())
    told = scoring_refusal("frozen", [arm], tmp_path)
    assert "not released" in told and lock().digest[:16] in told
    stored(tmp_path, lock(None, RELEASE))
    assert scoring_refusal("frozen", ["FULL", arm], tmp_path) == ""


def test_the_development_surface_and_the_arms_that_rank_nothing_are_free(tmp_path: Path) -> None:
    assert scoring_refusal("development", ARMS, tmp_path) == ""
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
    with pytest.raises(InvalidRunError, match="stay as locked: confirmatory"):
        amended(loose, {**here, "agent": "new"}, date="d", commit="c", reason="r")
