"""``retrieve`` and ``state check``: the instrument without the experiment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.retrieval import registry
from schemarouter.retrieval.base import Ranking, Usage
from schemarouter.retrieval.registry import build_retriever, resolve
from schemarouter.state import FIELDS, ExecutionState
from schemarouter.state.leakage import FORBIDDEN
from surface.loader import load_catalogs
from tests.cli.program import ROOT, environment, inside, outside, refused
from tests.strategies import laws, states

QUERY = "renew the lease of the centrifuge"
BM25 = ("--retriever", "bm25")


def _state(**changes: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(ExecutionState.start(QUERY).canonical_json())
    observed = {
        "executed_registered_route_ids": ["cmms.get_work_order"],
        "observation_field_names": ["lease_id"],
        "observation_value_types": ["string"],
        "stable_observed_identifiers": ["LS-17"],
        "last_execution_status": "ok",
    }
    return {**state, **observed, **changes}


def test_retrieve_prints_what_the_retriever_ranks() -> None:
    catalog = load_catalogs([100])[100]
    ranking = build_retriever("bm25", catalog).rank(QUERY, k=5)
    result = inside("retrieve", QUERY, *BM25)
    assert (result.code, result.err) == (0, "")
    assert [line.split()[2] for line in result.out.splitlines()] == [item for item, _ in ranking.items]
    assert len(ranking.items) == 5
    parsed = inside("retrieve", QUERY, *BM25, "--json").json
    assert [(c["id"], c["score"]) for c in parsed["candidates"]] == [*ranking.items]
    assert parsed["retriever"] == str(resolve("bm25"))
    assert parsed["catalog"] == {"size": 100, "view": "full", "fingerprint": catalog.fingerprint}


def test_what_a_ranking_used_is_printed_where_it_used_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    used = Ranking((("cmms.create_work_order", 1.0),), usage=Usage(model_tokens=120, calls=2, cost=0.0125))
    fixed = SimpleNamespace(rank=lambda query, *, k: used)
    assert "usage" not in inside("retrieve", QUERY, *BM25, "--json").json
    assert "used" not in inside("retrieve", QUERY, *BM25, "--explain").err
    monkeypatch.setattr(registry, "build_retriever", lambda spec, entries: fixed)
    assert inside("retrieve", QUERY, "--json").json["usage"] == {"model_tokens": 120, "calls": 2, "cost": 0.0125}
    assert "used 120 model tokens in 2 calls, 0.012500 USD" in inside("retrieve", QUERY, "--explain").err
    assert "used" not in inside("retrieve", QUERY).err


@pytest.mark.parametrize("k", [1, 3, 50])
def test_k_is_a_prefix_of_the_whole_ranking(k: int) -> None:
    whole = inside("retrieve", QUERY, *BM25, "-k", "100", "--json").json["candidates"]
    assert inside("retrieve", QUERY, *BM25, "-k", k, "--json").json["candidates"] == whole[:k]


def test_a_state_from_a_file_or_from_stdin_ranks_for_what_was_observed(tmp_path: Path) -> None:
    data = json.dumps(_state()).encode()
    (tmp_path / "state.json").write_bytes(data)
    ranking = build_retriever("bm25", load_catalogs([100])[100]).rank(ExecutionState.parse(data).retrieval_query(), k=5)
    by_file = inside("retrieve", QUERY, *BM25, "--json", "--state", tmp_path / "state.json")
    by_stdin = inside("retrieve", QUERY, *BM25, "--json", "--state", "-", stdin=data)
    assert by_file == by_stdin
    assert [(c["id"], c["score"]) for c in by_file.json["candidates"]] == [*ranking.items]
    assert by_file.json["candidates"] != inside("retrieve", QUERY, *BM25, "--json").json["candidates"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("another query", *BM25, "--state", "-"), 2, (repr(QUERY), "'another query'")),
        ((QUERY, "--retriever", "bm26"), 2, ("unknown retriever", "Did you mean 'bm25'?")),
        ((QUERY, "--retriever", "rrf"), 2, ("rrf takes",)),
        ((QUERY, *BM25, "--state", "/nowhere/state.json"), 2, ("/nowhere/state.json", "cannot be read")),
        ((QUERY, *BM25, "--state", "/"), 2, ("cannot be read",)),
    ],
    ids=["mismatch", "unknown", "nesting", "missing", "folder"],
)
def test_a_lookup_that_cannot_be_done_is_refused(arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    refused(inside("retrieve", *arguments, stdin=json.dumps(_state()).encode()), code, *words)


def test_an_unknown_catalog_size_is_a_usage_error_that_lists_the_sizes() -> None:
    refused(inside("retrieve", QUERY, *BM25, "--catalog", "7"), 2, "7", "100")


@pytest.mark.parametrize("query", ["", " \t"])
def test_an_empty_query_is_refused(query: str) -> None:
    for options in ((), ("--json",)):
        refused(inside("retrieve", query, *BM25, *options), 2, "the query is empty")


def test_a_query_that_is_no_unicode_is_one_message() -> None:
    result = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"schemarouter", b"retrieve", b"bad \xff byte", b"--retriever", b"bm25"],
        capture_output=True, env=environment(), cwd=ROOT, check=False,
    )  # fmt: skip
    assert result.returncode in (2, 3)
    assert result.stderr.startswith(b"error: ") and b"surrogate" in result.stderr


def test_a_query_that_holds_the_marker_line_is_refused() -> None:
    result = inside("retrieve", "x\n\n[EXECUTION_STATE]\n{}", *BM25)
    assert result.code in (2, 3)
    refused(result, result.code, "EXECUTION_STATE")


@laws(25)
@given(state=states(), indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_any_spelling_of_a_state_is_checked_into_its_canonical_bytes(
    state: ExecutionState, indent: int | None, ascii_only: bool
) -> None:
    fields = json.loads(state.canonical_json())
    spelled = json.dumps(dict(reversed(fields.items())), indent=indent, ensure_ascii=ascii_only).encode()
    result = inside("state", "check", "-", stdin=spelled)
    assert (result.code, result.stdout, result.err) == (0, state.canonical_json(), "")


@pytest.mark.slow
def test_state_check_seen_from_outside_gives_the_bytes_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(_state(original_query="설비 점검 🛠"), indent=3))
    result = outside("state", "check", tmp_path / "state.json")
    again = outside("state", "check", "-", stdin=result.stdout)
    assert result == again
    assert (result.code, result.err) == (0, "")
    assert "설비 점검 🛠".encode() in result.stdout and not result.stdout.endswith(b"\n")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mood": "good"}, ("unknown state field 'mood'",)),
        ({"original_querry": "x"}, ("Did you mean 'original_query'?",)),
        ({"original_query": 7}, ("original_query",)),
        ({"observation_units": ["kg", "g"]}, ("observation_units", "sorted")),
        ({"observation_units": ["g", "g"]}, ("observation_units",)),
        ({"observation_units": "g"}, ("observation_units",)),
        ({"observation_value_types": ["text"]}, ("observation_value_types",)),
        ({"stable_observed_identifiers": ["free text here"]}, ("stable_observed_identifiers",)),
        ({"last_execution_status": "fine"}, ("last_execution_status", "not_run")),
        ({"last_execution_status": "error"}, ("last_error_class",)),
        ({"last_error_class": "Bad Class"}, ("last_error_class",)),
        ({"last_execution_status": "not_run"}, ("not_run",)),
        ({"task_incomplete_boolean": 1}, ("task_incomplete_boolean", "true or false")),
    ],
)  # fmt: skip
def test_each_kind_of_mistake_in_a_state_is_named(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(inside("state", "check", "-", stdin=json.dumps(_state(**changes)).encode()), 3, *words)


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_named(field: str) -> None:
    state = _state()
    del state[field]
    refused(inside("state", "check", "-", stdin=json.dumps(state).encode()), 3, field, "missing")


def test_all_mistakes_of_a_state_are_listed_at_once() -> None:
    broken = _state(mood=1, observation_units=["b", "a"], task_incomplete_boolean="no")
    del broken["original_query"]
    result = inside("state", "check", "-", stdin=json.dumps(broken).encode())
    refused(result, 3, "mood", "observation_units", "task_incomplete_boolean", "original_query")


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_field_is_reported_before_an_unknown_one(name: str) -> None:
    spelled = name.upper().replace("_", "-")
    for broken in ({"aaa_unknown": 1, **_state(), spelled: 1}, _state(mood={"deep": [{spelled: None}]})):
        message = refused(inside("state", "check", "-", stdin=json.dumps(broken).encode()), 3, spelled)
        assert "unknown state field" not in message and "forbidden" in message.lower()


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'"x"', b"7", b"{}", b"NaN", b'{"a":NaN}', b"\x00\xff\xfe\x80", b"\xef\xbb\xbf{}",
     b"[" * 10_000_000, b'{"a":' * 2_000_000, b"[" * 5_000_000 + b"]" * 5_000_000, b"9" * 10_000],
    ids=["empty", "open", "list", "null", "text", "number", "no fields", "nan", "nan inside", "binary", "mark",
         "brackets", "objects", "closed brackets", "long number"],
)  # fmt: skip
def test_what_is_no_state_at_all_is_one_short_message(data: bytes) -> None:
    message = refused(inside("state", "check", "-", stdin=data), 3, "not an execution state")
    assert len(message) < 1_000


@pytest.mark.slow
def test_ten_megabytes_of_brackets_seen_from_outside(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_bytes(b"[" * 10_000_000)
    refused(outside("state", "check", tmp_path / "deep.json"), 3, "nested too deeply")


@pytest.mark.parametrize("name", ["nowhere.json", ".", "n" * 300])
def test_a_state_file_that_cannot_be_read_is_a_usage_error(name: str, tmp_path: Path) -> None:
    refused(inside("state", "check", tmp_path / name), 2, "cannot be read")


def test_keys_given_twice_are_refused() -> None:
    data = json.dumps(_state()).encode()[:-1] + b',"last_execution_status":"ok"}'
    refused(inside("state", "check", "-", stdin=data), 3, "twice", "last_execution_status")


@laws(60)
@given(data=st.binary(max_size=80))
def test_any_bytes_as_a_state_are_refused(data: bytes) -> None:
    refused(inside("state", "check", "-", stdin=data), 3, "not an execution state")
