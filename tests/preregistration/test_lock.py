"""The lock: what was promised beside what is here, and every difference told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from preregistration.lock import FILES, Comparison, Lock, compare, flatten, read_lock
from schemarouter.errors import InvalidRunError

IDENTITIES: dict[str, Any] = {"agent": "reference", "catalogs": {"100": "a" * 64, "250": "b" * 64}, "surface": "c" * 64}


def lock(fingerprints: dict[str, str] | None = None) -> Lock:
    held = flatten(IDENTITIES) if fingerprints is None else fingerprints
    return Lock(schema_version=1, surface="frozen", confirmatory=True, fingerprints=held)


def test_identities_are_flattened_to_one_level_of_names() -> None:
    assert sorted(flatten(IDENTITIES)) == ["agent", "catalogs.100", "catalogs.250", "surface"]


def test_the_same_identities_hold_under_every_name() -> None:
    rows = compare(lock(), IDENTITIES)
    assert [row.name for row in rows] == ["agent", "catalogs.100", "catalogs.250", "surface"]
    assert all(row.holds for row in rows)


@pytest.mark.parametrize("name", sorted(flatten(IDENTITIES)))
def test_each_single_difference_is_told_with_both_sides(name: str) -> None:
    promised = {**flatten(IDENTITIES), name: "other"}
    broken = [row for row in compare(lock(promised), IDENTITIES) if not row.holds]
    assert broken == [Comparison(name, "other", flatten(IDENTITIES)[name])]


def test_what_only_one_side_has_does_not_hold() -> None:
    promised = {n: v for n, v in flatten(IDENTITIES).items() if n != "surface"}
    rows = {row.name: row for row in compare(lock({**promised, "tokenizer": "t"}), IDENTITIES)}
    assert (rows["surface"].promised, rows["surface"].holds) == (None, False)
    assert (rows["tokenizer"].actual, rows["tokenizer"].holds) == (None, False)
    assert not Comparison("x", None, None).holds


def test_a_lock_is_read_back_and_its_absence_is_no_lock(tmp_path: Path) -> None:
    assert read_lock("frozen", tmp_path) is None
    (tmp_path / FILES["frozen"]).write_bytes(orjson.dumps(lock().model_dump(mode="json")))
    assert read_lock("frozen", tmp_path) == lock()


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"{}", b'{"schema_version":1,"surface":"frozen","confirmatory":1,"fingerprints":{}}']
)
def test_a_lock_that_cannot_be_read_is_refused_and_never_taken_for_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILES["frozen"]).write_bytes(content)
    with pytest.raises(InvalidRunError, match=r"^lock\.json: "):
        read_lock("frozen", tmp_path)
