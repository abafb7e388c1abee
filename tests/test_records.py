"""Records: what is written is read back; anything else is refused with its location."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.canonical import canonical_json
from schemarouter.errors import InvalidRunError
from schemarouter.records import (
    SCHEMA_VERSION,
    Asked,
    Called,
    Decided,
    Ended,
    EpisodeRecord,
    Event,
    Exposed,
    ModelTurn,
    Observed,
    StateChanged,
    decode,
    encode,
)
from tests.strategies import LAWS, free_text

LIVE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)  # Canonical JSON has no -0.0.
    | free_text
)
VALUES = st.recursive(
    LIVE, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(free_text, inner, max_size=2), max_leaves=4
)
OBJECTS = st.dictionaries(free_text, VALUES, max_size=3)
TURNS = st.integers(0, 12)
ROUTES = st.lists(free_text, max_size=3).map(tuple)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Exposed, TURNS, st.sampled_from(["open", "widen", "refresh"]), ROUTES, ROUTES, st.booleans(), st.booleans()
    ),
    st.builds(ModelTurn, TURNS, st.integers(0, 10**6), st.integers(0, 10**6)),
    st.builds(Asked, TURNS),
    st.builds(Called, TURNS, free_text, OBJECTS),
    st.builds(Decided, TURNS, *[st.booleans()] * 3, free_text, st.booleans(), st.booleans(), free_text),
    st.builds(Observed, TURNS, st.sampled_from(["ran", "error", "blocked"]), OBJECTS, st.booleans()),
    st.builds(StateChanged, TURNS, free_text, st.dictionaries(free_text, TURNS, max_size=2)),
    st.builds(Ended, TURNS, st.sampled_from(["completed", "stalled", "infrastructure"]), free_text, ROUTES),
)
RECORDS = st.builds(
    EpisodeRecord, st.just(1), free_text, TURNS, free_text, st.integers(1, 3), st.lists(EVENTS, max_size=5).map(tuple)
)
RECORD = EpisodeRecord(1, "t-en-01", 12, "FULL", 1, (Called(1, "a.b", {"x": 1}), Ended(1, "stalled", "", ())))


@LAWS
@given(RECORDS)
def test_a_record_is_read_back_as_it_was_written(record: EpisodeRecord) -> None:
    data = encode(record)
    assert b"\n" not in data
    assert decode(data, "here") == record
    assert encode(decode(data, "here")) == data


@LAWS
@given(RECORDS)
def test_a_record_is_written_as_canonical_json(record: EpisodeRecord) -> None:
    assert encode(record) == canonical_json(orjson.loads(encode(record)))


def raw(**change: Any) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(encode(RECORD))
    return {**value, **change}


def test_a_newer_record_is_refused_by_name() -> None:
    newer = SCHEMA_VERSION + 1
    message = rf"^x\.jsonl, line 3: record of schema_version {newer}; this program reads up to {SCHEMA_VERSION}"
    with pytest.raises(InvalidRunError, match=message):
        decode(raw(schema_version=newer, new_field=1), "x.jsonl, line 3")
    for version in (0, -7):
        with pytest.raises(InvalidRunError, match=f"schema_version {version}; .* none below 1"):
            decode(raw(schema_version=version), "x.jsonl, line 3")


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": "1"},
        {"catalog": "12"},
        {"attempt": None},
        {"surprise": 1},
        {"events": [{"type": "dreamt", "turn": 1}]},
        {"events": [{"type": "asked"}]},
        {"events": [{"type": "asked", "turn": 1, "surprise": 2}]},
        {"events": [{"type": "asked", "turn": "1"}]},
        {"events": [{"type": "asked", "turn": True}]},
        {"events": [{"type": "asked", "turn": 1.0}]},
        {"events": [{"type": "observed", "turn": 1, "outcome": "ran", "payload": {}, "incomplete": 1}]},
        {"events": [{"type": "state", "turn": 1, "sha256": "", "omitted": {"x": "1"}}]},
        {"events": [{"type": "ended", "turn": 1, "reason": "tired", "detail": "", "steps_completed": []}]},
        {"events": [{"type": "ended", "turn": 1, "reason": "stalled", "detail": "", "steps_completed": "find"}]},
    ],
    ids=str,
)
def test_a_record_of_another_shape_is_refused_with_its_location(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRunError, match=r"^shard, line 7: "):
        decode(raw(**change), "shard, line 7")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"{}"])
def test_what_is_no_record_at_all_is_refused_with_its_location(data: bytes) -> None:
    with pytest.raises(InvalidRunError, match=r"^shard, line 7: "):
        decode(data, "shard, line 7")


def test_only_an_attempt_that_an_infrastructure_failure_ended_is_infrastructure() -> None:
    assert not RECORD.infrastructure and not replace(RECORD, events=()).infrastructure
    assert replace(RECORD, events=(Ended(1, "infrastructure", "", ()),)).infrastructure
    assert not replace(RECORD, events=(Ended(1, "infrastructure", "", ()), Ended(1, "stalled", "", ()))).infrastructure


def test_an_episode_is_named_by_task_catalog_and_condition() -> None:
    assert RECORD.episode_id == "t-en-01/12/FULL"
