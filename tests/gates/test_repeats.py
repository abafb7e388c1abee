"""A grid that is run more than once: a row for each episode, intervals over tasks as before, and the spread of the runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conditions.running.plan import WHOLE
from conditions.storage.run_directory import read_header
from conditions.storage.shards import join_line, next_chain, shard_name
from gates.aggregate import read_complete_run
from gates.gate import judge
from gates.measures import BY_NAME
from gates.replay import Replay
from schemarouter.agents.base import Action, AgentView, Guide
from schemarouter.canonical import sha256_hex
from schemarouter.errors import InvalidRunError
from schemarouter.records import encode, split_envelope
from tests.toys import read_records, reference, toy_protocol, toy_run, toy_runner, write_records

PROTOCOL = toy_protocol()


@pytest.fixture(scope="module")
def thrice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("thrice") / "run"
    toy_run(folder, repeats=3)
    return folder


@pytest.fixture
def run(thrice: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    copy.mkdir()
    for item in thrice.iterdir():
        (copy / item.name).write_bytes(item.read_bytes())
    return copy


@pytest.fixture(scope="module")
def reference_data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return toy_run(tmp_path_factory.mktemp("once") / "run")


def test_every_repeat_has_its_rows_and_a_deterministic_agent_the_same_in_each(run: Path, reference_data: Any) -> None:
    result = read_complete_run(run, reference_data)
    assert len(result.rows) == 3 * 40
    assert [row.repeat for row in result.rows] == [number for number in (1, 2, 3) for _ in range(40)]
    first = [row.counts for row in result.rows[:40]]
    assert [row.counts for row in result.rows[40:80]] == first == [row.counts for row in result.rows[80:]]


def test_point_estimates_stay_and_the_spread_of_equal_runs_is_0(run: Path, reference_data: Any, tmp_path: Path) -> None:
    toy_run(tmp_path / "once")
    once, thrice = (judge(read_complete_run(folder, reference_data), PROTOCOL) for folder in (tmp_path / "once", run))
    assert [item.estimate for item in thrice.criteria] == [item.estimate for item in once.criteria]
    assert [item.intervals for item in thrice.criteria[1:4]] == [item.intervals for item in once.criteria[1:4]]
    assert once.repeats == {}
    for measures in thrice.repeats.values():
        for name, item in measures.items():
            assert len(item.values) == 3 and name in BY_NAME
            assert item.spread == 0 or (item.spread is None and None in item.values)


def test_the_spread_is_the_sample_deviation_of_the_values(tmp_path: Path, reference_data: Any) -> None:
    made = 0

    class Lazy:
        def __init__(self, guide: Guide) -> None:
            nonlocal made
            made += 1
            self._agent, self._lazy = reference(guide), made % 3 == 0

        def act(self, view: AgentView) -> Action:
            return Action("stop", reason="stalled") if self._lazy else self._agent.act(view)

    toy_run(tmp_path / "run", toy_runner(agent=Lazy), repeats=3, limit=100)
    item = read_complete_run(tmp_path / "run", reference_data).aggregate().repeats["FULL"]["task_pass"]
    assert len(set(item.values)) > 1
    assert item.spread == pytest.approx(statistics.stdev(value for value in item.values if value is not None))


def test_what_is_replayed_once_gives_what_replaying_each_gives(
    run: Path, reference_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = 0
    real = Replay

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal replayed
        replayed += 1
        return real(*arguments, **options)

    monkeypatch.setattr("gates.aggregate.Replay", counting)
    remembered = list(read_complete_run(run, reference_data).aggregate().chunks())
    assert replayed == 40
    monkeypatch.setattr("gates.aggregate.split_envelope", lambda data: None)
    assert list(read_complete_run(run, reference_data).aggregate().chunks()) == remembered
    assert replayed == 40 + 120


def rewritten(run: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the last record, and write the digest chain anew."""
    path = run / shard_name(WHOLE)
    header = path.read_bytes().split(b"\n", 1)[0]
    chain, lines = sha256_hex(header), [header + b"\n"]
    records = [encode(record) for record in read_records(run)]
    for data in [*records[:-1], change(records[-1])]:
        chain = next_chain(chain, data)
        lines.append(join_line(chain, data))
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b'"repeat":3', b'"repeat":4', "not in the grid"),
        (b'"repeat":3', b'"repeat":2', "completed before"),
        (b'"repeat":3', b'"repeat":03', "not JSON"),
        (b'"repeat":3', b'"repeat":3,"repeat":3', "not canonical JSON"),
        (b'"repeat":3', b'"repeat": 3', "not canonical JSON"),
        (b'"attempt":1', b'"attempt":2', "attempt 2 of .* where 1 comes next"),
        (b'"condition":"ORACLE"', b'"condition":"FULL"', "completed before"),
        (b'"schema_version":1', b'"schema_version":2', "schema_version 2"),
        (b'"repeat":3,"schema_version":1', b'"schema_version":1', "not canonical JSON"),
        (
            b'"arguments":{"',
            b'"arguments":{"a":' + b"[" * 300 + b"]" * 300 + b',"',
            "not a record that this program could have",
        ),
    ],
)
def test_the_envelope_of_known_events_is_still_checked(
    before: bytes, after: bytes, reason: str, run: Path, reference_data: Any
) -> None:
    rewritten(run, lambda data: data.replace(before, after))
    with pytest.raises(InvalidRunError, match=rf"line 121: .*{reason}"):
        read_complete_run(run, reference_data)


def test_known_events_under_another_name_are_replayed_there(run: Path, reference_data: Any) -> None:
    records = read_records(run)
    other = next(n for n, record in enumerate(records) if record.repeat == 3 and record.condition == "SR-5-STATIC")
    records[other] = replace(records[other], events=records[other + 1].events)
    write_records(run, records)
    with pytest.raises(InvalidRunError, match=rf"line {other + 2}, {records[other].episode_id}"):
        read_complete_run(run, reference_data)


def test_bytes_of_another_shape_are_not_taken_apart(run: Path) -> None:
    data = encode(read_records(run)[-1])
    envelope = split_envelope(data)
    assert envelope is not None and (envelope.repeat, envelope.attempt, envelope.condition) == (3, 1, "ORACLE")
    assert envelope.events.startswith(b"[{") and envelope.events.endswith(b"}]") and envelope.events in data
    assert split_envelope(data + b" ") is split_envelope(b" " + data) is split_envelope(data[:-1]) is None
    assert split_envelope(data.replace(b'"schema_version":1', b'"schema_version":2')) is None
    assert read_header(run).plan.repeats == 3
