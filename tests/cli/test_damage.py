"""Directories that are missing, foreign, half-written or altered: exit 2 or 3, one message, never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from conditions.running.plan import Plan
from conditions.storage.run_directory import RUN_FILE, RunHeader
from conditions.storage.shards import header_line, join_line, next_chain
from schemarouter.canonical import sha256_hex
from tests.cli.conftest import Copies
from tests.cli.program import SHARD_FILE, SMALL, Outcome, edit_run, inside, outside, refused
from tests.strategies import laws

pytestmark = pytest.mark.slow

FUZZ = laws(20, HealthCheck.function_scoped_fixture)

Alter = Callable[[Path], object]


def _folder_as(name: str) -> Alter:
    def alter(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return alter


def _shard(change: Callable[[list[bytes]], list[bytes]]) -> Alter:
    def alter(folder: Path) -> None:
        path = folder / SHARD_FILE
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return alter


def _header(change: Callable[[dict[str, Any]], object]) -> Alter:
    def alter(folder: Path) -> None:
        run = json.loads((folder / RUN_FILE).read_bytes())
        change(run)
        (folder / RUN_FILE).write_text(json.dumps(run))

    return alter


def _identity(name: str, value: object) -> Alter:
    return _header(lambda run: run["identities"].__setitem__(name, value))


DAMAGE: dict[str, tuple[Alter, tuple[str, ...]]] = {
    "folder missing": (shutil.rmtree, (RUN_FILE, "does not exist")),
    "run.json missing": (lambda f: (f / RUN_FILE).unlink(), (RUN_FILE, "does not exist")),
    "run.json empty": (lambda f: (f / RUN_FILE).write_bytes(b""), (RUN_FILE, "half-written or not JSON")),
    "run.json cut": (lambda f: (f / RUN_FILE).write_bytes((f / RUN_FILE).read_bytes()[:700]), (RUN_FILE, "half-written")),
    "run.json binary": (lambda f: (f / RUN_FILE).write_bytes(b"\x00\xff\xfe"), (RUN_FILE, "half-written or not JSON")),
    "run.json a list": (lambda f: (f / RUN_FILE).write_bytes(b"[1]"), (RUN_FILE, "no run header")),
    "run.json foreign": (lambda f: (f / RUN_FILE).write_bytes(b'{"name":"left-pad"}'), (RUN_FILE, "no run header")),
    "run.json a folder": (_folder_as(RUN_FILE), (RUN_FILE, "cannot be read")),
    "newer": (_header(lambda r: r.__setitem__("schema_version", 99)), (RUN_FILE, "schema_version 99", "up to 1")),
    "plan empty": (_header(lambda r: r.__setitem__("plan", {})), (RUN_FILE, "plan.tasks: Field required")),
    "plan altered": (_header(lambda r: r["plan"].__setitem__("limit", 19)), (RUN_FILE, "contradicts itself")),
    "retriever altered": (_identity("retriever", "bm25(k1=9)"), ("rests on other data or code", "retriever")),
    "catalog altered": (_identity("catalogs", {"100": "0" * 64}), ("rests on other data or code", "catalogs")),
    "protocol altered": (_identity("protocol", "0" * 64), ("rests on other data or code", "protocol")),
    "identity added": (_identity("moon", "full"), ("identities.moon: Extra inputs",)),
    "shard missing": (lambda f: (f / SHARD_FILE).unlink(), ("no shard",)),
    "shard empty": (lambda f: (f / SHARD_FILE).write_bytes(b""), (f"{SHARD_FILE}, line 1", "torn")),
    "shard foreign": (lambda f: (f / SHARD_FILE).write_bytes(b'{"a":1}\n'), (f"{SHARD_FILE}, line 1", "not a shard header")),
    "shard binary": (lambda f: (f / SHARD_FILE).write_bytes(b"\x00\xff\n\n"), (f"{SHARD_FILE}, line 1",)),
    "shard a folder": (_folder_as(SHARD_FILE), ("cannot be read",)),
    "line lost": (_shard(lambda x: [*x[:3], *x[4:]]), ("line 4", "chain")),
    "line twice": (_shard(lambda x: [*x, x[-1]]), ("line 22", "chain")),
    "lines swapped": (_shard(lambda x: [x[0], x[2], x[1], *x[3:]]), ("line 2", "chain")),
    "blank line": (_shard(lambda x: [*x[:5], b"\n", *x[5:]]), ("line 6", "not a record line")),
    "record altered": (_shard(lambda x: [*x[:2], x[2].replace(b'"attempt":1', b'"attempt":2'), *x[3:]]), ("line 3", "chain")),
    "carriage returns": (_shard(lambda x: [line[:-1] + b"\r\n" for line in x]), ("line 1", "not canonical JSON",)),
    "header altered": (_shard(lambda x: [x[0].replace(b'"limit":20', b'"limit":21'), *x[1:]]), ("line",)),
    "shard copied": (
        lambda f: shutil.copy(f / SHARD_FILE, f / "episodes-00002-of-00002.jsonl"), ("divided in 2 ways at once", "00002.jsonl")
    ),
    "older": (_header(lambda r: r.__setitem__("schema_version", 0)), (RUN_FILE, "schema_version 0")),
    "part added": (_header(lambda r: r.__setitem__("moon", "full")), (RUN_FILE, "moon")),
    "provenance cut": (_header(lambda r: r["provenance"].pop("code")), (RUN_FILE, "provenance.code")),
    "limit below zero": (_header(lambda r: r["plan"].__setitem__("limit", -5)), (RUN_FILE, "the limit -5")),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused_by_every_judge_with_what_is_wrong(name: str, copy: Copies) -> None:
    alter, words = DAMAGE[name]
    folder = copy()
    alter(folder)
    messages = {refused(inside(command, folder), 3, *words) for command in ("gate", "show")}
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("command", "name"),
    [("aggregate", "run.json cut"), ("gate", "line lost"), ("show", "folder missing"), ("gate", "shard binary")],
)  # fmt: skip
def test_damage_seen_from_outside_is_exit_3_and_no_traceback(command: str, name: str, copy: Copies) -> None:
    alter, words = DAMAGE[name]
    folder = copy()
    alter(folder)
    refused(outside(command, folder), 3, *words)


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"surface": "developmint"}, "surface"), ({"surface": ["development"]}, "surface"), ({"surface": None}, "surface")],
    ids=["unknown", "list", "missing"],
)  # fmt: skip
def test_a_header_that_names_no_known_surface_is_invalid_and_no_usage_error(
    changes: dict[str, Any], word: str, copy: Copies
) -> None:
    refused(inside("gate", edit_run(copy(), **changes)), 3, word)


@pytest.mark.parametrize("name", ["agent", "retriever"])
@pytest.mark.parametrize("value", ["nonesuch", None, "bm25(", 7])
def test_a_header_with_an_unknown_spec_is_invalid_and_no_usage_error(name: str, value: object, copy: Copies) -> None:
    folder = copy()
    _identity(name, value)(folder)
    refused(inside("gate", folder), 3, name)


def _forged(folder: Path, plan: Plan, catalog: int) -> Path:
    """A directory whose header, shard and chain agree on a plan that the surface does not have."""
    run = json.loads((folder / RUN_FILE).read_bytes())
    lines = (folder / SHARD_FILE).read_bytes().splitlines()[1 : 1 + len(set(plan.units))]
    header = header_line(RunHeader.model_validate({**run, "plan": plan.document().as_json()}))
    chain, written = sha256_hex(header), [header + b"\n"]
    for line in lines:
        record = line.partition(b'"record":')[2][:-1].replace(b'"catalog":100', b'"catalog":%d' % catalog)
        chain = next_chain(chain, record)
        written.append(join_line(chain, record))
    (folder / SHARD_FILE).write_bytes(b"".join(written))
    return edit_run(folder, plan=plan.document().as_json())


def test_a_consistent_header_over_a_catalog_that_is_not_there_is_refused(copy: Copies) -> None:
    folder = copy()
    stored = json.loads((folder / RUN_FILE).read_bytes())["plan"]
    plan = Plan(tuple(stored["tasks"]), (7,), tuple(stored["conditions"]), stored["limit"])
    refused(inside("gate", _forged(folder, plan, 7)), 3, "catalog", "7")


def test_a_consistent_header_that_lists_a_task_twice_is_refused(copy: Copies) -> None:
    folder = copy()
    stored = json.loads((folder / RUN_FILE).read_bytes())["plan"]
    first = stored["tasks"][0]
    plan = Plan((first, first, *stored["tasks"][1:]), (100,), tuple(stored["conditions"]), 10)
    refused(inside("gate", _forged(folder, plan, 100)), 3, first)


def _plain(outcome: Outcome, *codes: int) -> None:
    assert outcome.code in codes, (outcome.code, outcome.err)
    if outcome.code not in (0, 1):
        refused(outcome, outcome.code)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["100", "tasks", "x"]), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@FUZZ
@given(data=st.binary(max_size=60) | _json.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_as_run_json_are_refused(data: bytes, small: Path, tmp_path: Path) -> None:
    (tmp_path / RUN_FILE).write_bytes(data)
    for command in ("status", "gate"):
        _plain(inside(command, tmp_path), 2, 3)
    _plain(inside("run", "--out", tmp_path, *SMALL), 2, 3)


@FUZZ
@given(data=st.binary(max_size=80), keep=st.integers(0, 3))
def test_any_bytes_in_a_shard_are_refused(data: bytes, keep: int, small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if not folder.exists():
        shutil.copytree(small, folder)
    lines = (small / SHARD_FILE).read_bytes().splitlines(keepends=True)
    (folder / SHARD_FILE).write_bytes(b"".join(lines[:keep]) + data)
    _plain(inside("aggregate", folder), 2, 3)
    # A last line that is still being written is no damage to a live run.
    _plain(inside("status", folder), 0, 2, 3)


_KEYS: tuple[tuple[str, ...], ...] = (
    ("identities",), ("plan",), ("stamp",), ("surface",), ("schema_version",), ("provenance",),
    ("identities", "agent"), ("identities", "retriever"), ("identities", "catalogs"), ("identities", "statistics"),
    ("plan", "tasks"), ("plan", "catalogs"), ("plan", "conditions"), ("plan", "limit"), ("plan", "episodes"),
    ("plan", "fingerprint"),
)  # fmt: skip
_VALUES: tuple[Any, ...] = ("x", None, [[{}]])


@pytest.mark.parametrize("keys", _KEYS, ids=".".join)
@pytest.mark.parametrize("value", _VALUES, ids=json.dumps)
def test_any_value_anywhere_in_a_header_is_refused_or_harmless(keys: tuple[str, ...], value: Any, copy: Copies) -> None:
    folder = copy()
    run = json.loads((folder / RUN_FILE).read_bytes())
    target = run
    for name in keys[:-1]:
        target = target[name]
    target[keys[-1]] = value
    (folder / RUN_FILE).write_text(json.dumps(run))
    for command in (("status", folder), ("aggregate", folder), ("run", "--out", folder, *SMALL)):
        _plain(inside(*command), 0, 2, 3)
