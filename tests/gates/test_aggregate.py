"""The aggregate of a complete run: an altered, incomplete, doubled or mixed set is refused, with what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from conditions.running.plan import WHOLE, Shard
from conditions.storage.run_directory import AGGREGATE_FILE, RUN_FILE, read_header
from conditions.storage.shards import ShardWriter, header_line, shard_name
from gates.aggregate import CompleteRun, read_complete_run, write_aggregate
from gates.identities import ReferenceData
from gates.measures import MEASURES
from schemarouter.catalog import Capability, Catalog
from schemarouter.errors import InvalidRunError
from schemarouter.files import pretty_json
from schemarouter.records import Ended, EpisodeRecord, Exposed, ModelTurn, Observed
from tests.gates.conftest import Slice
from tests.toys import changed, edit_record, position, read_records, toy_run, with_events, write_records

SHARD = shard_name(WHOLE)


@pytest.fixture
def run(real: Slice, tmp_path: Path) -> Path:
    return real.copy(tmp_path)


def refused(folder: Path, reference: ReferenceData, *message: str) -> None:
    with pytest.raises(InvalidRunError) as caught:
        read_complete_run(folder, reference)
    for part in message:
        assert part in str(caught.value)


def episode(folder: Path, condition: str, number: int = 0) -> str:
    return [r.episode_id for r in read_records(folder) if r.condition == condition][number]


# --- as it should be --------------------------------------------------------------------------------------------------


def test_an_untouched_run_is_aggregated_whole_in_the_order_of_its_grid(real: Slice, run: Path) -> None:
    result = read_complete_run(run, real.reference)
    assert [(row.task, row.catalog, row.condition) for row in result.rows] == [
        (unit.task, unit.catalog, unit.condition) for unit in result.plan.units
    ]
    assert (len(result.rows), len(result.plan.tasks), result.infrastructure_attempts) == (30, 6, 0)
    assert {real.surface.by_id[task].prompt.language for task in real.tasks} == {"en", "ko", "es", "ja", "de", "mixed"}
    full, oracle = result.select("FULL"), result.select("ORACLE")
    assert all(row.counts.passed for row in [*full, *oracle])
    assert any(not row.counts.passed for row in result.select("SR-5-STATIC")), "else the slice shows nothing"


def test_the_order_of_lines_changes_nothing(real: Slice, run: Path) -> None:
    before = read_complete_run(run, real.reference)
    write_records(run, read_records(run)[::-1])
    assert read_complete_run(run, real.reference).aggregate().to_bytes() == before.aggregate().to_bytes()


def test_the_file_holds_every_measure_with_its_sums_and_null_where_it_is_undefined(real: Slice, run: Path) -> None:
    result = read_complete_run(run, real.reference)
    write_aggregate(run, result.aggregate())
    written = orjson.loads((run / AGGREGATE_FILE).read_bytes())
    assert written["episodes"] == {"counted": 30, "expected": 30} and len(written["rows"]) == 30
    for name in result.plan.conditions:
        assert set(written["conditions"][name]) == {item.name for item in MEASURES}
    for name in ("FULL", "ORACLE"):
        table = written["conditions"][name]
        assert table["initial_miss_recovery"] == {"numerator": 0, "denominator": 0, "value": None}
        assert table["task_pass"] == {"numerator": 6, "denominator": 6, "value": 1.0}
    assert written["stamp"] == "EXPLORATORY (development surface, part of the grid, another retriever or agent)"


# --- episodes lost, doubled, mixed ------------------------------------------------------------------------------------


def test_one_lost_episode_is_refused_by_name_with_the_remedy(real: Slice, run: Path) -> None:
    records = read_records(run)
    write_records(run, [*records[:13], *records[14:]])
    missing = f"missing {records[13].episode_id}"
    refused(run, real.reference, "not complete: 29 of 30", missing, "The same run command resumes it")


def test_one_doubled_episode_is_refused_with_shard_and_line(real: Slice, run: Path) -> None:
    records = read_records(run)
    write_records(run, [*records, records[4]])
    refused(run, real.reference, f"{SHARD}, line 32: episode {records[4].episode_id}", "its record is there twice")


def test_a_second_shard_with_the_same_episodes_is_refused(real: Slice, run: Path) -> None:
    second_shard(run, run)
    refused(run, real.reference, "divided in 2 ways at once", SHARD, shard_name(Shard(2, 2)))


def first_of_two(run: Path) -> None:
    """Leave of a run the shard that would be the first of two."""
    records, run_header = read_records(run), read_header(run)
    (run / SHARD).unlink()
    header = header_line(run_header, Shard(1, 2))
    with ShardWriter(run / shard_name(Shard(1, 2)), header) as writer:
        for record in records[::2]:
            writer.append(record)


def second_shard(run: Path, source: Path) -> None:
    """Put the first shard of a run into another one as its second."""
    header = header_line(read_header(source), Shard(2, 2))
    with ShardWriter(run / shard_name(Shard(2, 2)), header) as writer:
        for record in read_records(source):
            writer.append(record)


def test_a_copy_of_a_shard_under_another_name_is_refused_at_its_header(real: Slice, run: Path) -> None:
    first_of_two(run)
    shutil.copy(run / shard_name(Shard(1, 2)), run / shard_name(Shard(2, 2)))
    refused(run, real.reference, f"{shard_name(Shard(2, 2))}, line 1: the header is of shard [1, 2]")


def test_an_episode_that_is_not_in_the_grid_is_refused_with_shard_and_line(real: Slice, run: Path) -> None:
    line = edit_record(run, episode(run, "FULL", 2), lambda record: replace(record, task="dev-xx-99"))
    refused(run, real.reference, f"{SHARD}, line {line}: episode dev-xx-99/", "not in the grid")


def test_a_relabelled_condition_is_refused(real: Slice, run: Path) -> None:
    records = read_records(run)
    other = next(n for n, record in enumerate(records) if _widened(record))
    one = other - 1
    assert records[one].condition == "SR-5-STATIC"
    records[one], records[other] = (
        replace(records[one], condition=records[other].condition), replace(records[other], condition=records[one].condition),
    )  # fmt: skip
    write_records(run, records)
    refused(run, real.reference, f"{SHARD}, line {one + 2}, {records[one].episode_id}", "asking can change it")


def _widened(record: EpisodeRecord) -> bool:
    return any(isinstance(event, Exposed) and event.cause == "widen" for event in record.events)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [("SR-5-STATIC", "routes are not in catalog 12: "), ("FULL", "something other than the whole catalog")],
)
def test_relabelled_catalogs_are_refused(tmp_path: Path, condition: str, reason: str) -> None:
    reference = toy_run(tmp_path / "run", conditions=[condition], tasks=["toy-en-01"])
    swapped = [replace(record, catalog={12: 36, 36: 12}[record.catalog]) for record in read_records(tmp_path / "run")]
    write_records(tmp_path / "run", swapped)
    refused(
        tmp_path / "run",
        reference,
        f"{SHARD}, line ",
        f"toy-en-01/{'12' if '12' in reason else '36'}/{condition}",
        reason,
    )


def test_lines_of_another_run_break_the_chain(real: Slice, run: Path, tmp_path: Path) -> None:
    toy_run(tmp_path / "toy", limit=3)
    alien = (tmp_path / "toy" / SHARD).read_bytes().splitlines(keepends=True)[2]
    lines = (run / SHARD).read_bytes().splitlines(keepends=True)
    (run / SHARD).write_bytes(b"".join([*lines[:6], alien, *lines[6:]]))
    refused(run, real.reference, f"{SHARD}, line 7: the digest chain is broken")


def test_a_whole_shard_of_another_run_is_refused_at_its_header(real: Slice, run: Path, tmp_path: Path) -> None:
    toy_run(tmp_path / "toy", limit=3)
    first_of_two(run)
    second_shard(run, tmp_path / "toy")
    refused(run, real.reference, f"{shard_name(Shard(2, 2))}, line 1: the shard's identities are not those of run.json")


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_a_torn_last_line_is_refused_with_shard_and_line(real: Slice, run: Path) -> None:
    (run / SHARD).write_bytes((run / SHARD).read_bytes()[:-7])
    refused(run, real.reference, f"{SHARD}, line 31: torn")


def test_a_broken_chain_is_refused_with_shard_and_line(real: Slice, run: Path) -> None:
    data = (run / SHARD).read_bytes()
    (run / SHARD).write_bytes(data.replace(b'"reason":"stalled"', b'"reason":"sTalled"', 1))
    refused(run, real.reference, f"{SHARD}, line ", "chain is broken")


def test_a_run_without_shards_is_refused(real: Slice, run: Path) -> None:
    (run / SHARD).unlink()
    refused(run, real.reference, "holds no shard")


# --- identities -------------------------------------------------------------------------------------------------------


def changed_run(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    header = read_header(folder).as_json()
    change(header)
    (folder / RUN_FILE).write_bytes(pretty_json(header))


def test_a_changed_catalog_hash_in_the_header_of_a_shard_is_refused(real: Slice, run: Path) -> None:
    identities = read_header(run).identities
    records = read_records(run)
    write_records(run, records, identities=changed(identities, catalogs={"100": "0" * 64}))
    refused(run, real.reference, f"{SHARD}, line 1: the shard's identities are not those of run.json: catalogs")


def test_a_changed_catalog_hash_in_run_json_is_refused(real: Slice, run: Path) -> None:
    changed_run(run, lambda header: header["identities"]["catalogs"].update({"100": "0" * 64}))
    refused(run, real.reference, "run.json: the run rests on other data or code", "catalogs: ", "0" * 64)


def test_identities_that_both_were_changed_are_still_compared_with_what_is_here(real: Slice, run: Path) -> None:
    records = read_records(run)
    changed_run(run, lambda header: header["identities"].update(surface="e" * 64))
    write_records(run, records)
    refused(run, real.reference, "run.json: the run rests on other data or code", "surface: ", real.surface.fingerprint)


def test_a_changed_plan_is_refused(real: Slice, run: Path) -> None:
    changed_run(run, lambda header: header["plan"].update(limit=20))
    refused(run, real.reference, "run.json: the plan contradicts itself")


def test_a_stamp_that_was_wiped_off_is_refused(real: Slice, run: Path) -> None:
    changed_run(run, lambda header: header.update(stamp=""))
    refused(run, real.reference, "stamp")


@pytest.mark.parametrize("part", ["stamp", "provenance"])
def test_a_run_json_that_lacks_a_part_is_refused_in_words(real: Slice, run: Path, part: str) -> None:
    from gates.gate import judge

    changed_run(run, lambda header: header.pop(part))
    with pytest.raises(InvalidRunError, match=part):
        judge(read_complete_run(run, real.reference), real.protocol)


def test_another_catalog_under_the_same_name_is_refused_by_what_it_answers(real: Slice, run: Path) -> None:
    # Even if every identity were forged: prompts are counted anew, and calls run anew.
    catalog = real.catalogs[100]
    items = [{**item.model_dump(), "description": f"{item.description} More."} for item in catalog.capabilities]
    other = Catalog([Capability.model_validate(item) for item in items], name="100")
    refused(run, replace(real.reference, catalogs={100: other}), f"{SHARD}, line 2, ", "tokens where")


# --- episodes that contradict themselves ------------------------------------------------------------------------------


def edit_event(kind: type, **change: Any) -> Callable[[EpisodeRecord], EpisodeRecord]:
    def edit(record: EpisodeRecord) -> EpisodeRecord:
        events: list[Any] = list(record.events)
        index = position(record, kind, last=True)
        events[index] = replace(events[index], **change)
        return with_events(record, events)

    return edit


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (edit_event(ModelTurn, schema_tokens=1), "tokens where"),
        (edit_event(ModelTurn, input_tokens=1), "tokens where"),
        (edit_event(Ended, reason="stalled"), "contradicts the events"),
        (edit_event(Ended, steps_completed=()), "the events give"),
        (edit_event(Observed, payload={}), "the record says {}"),
    ],
)
def test_changed_tokens_and_outcomes_are_refused_with_shard_line_and_reason(
    real: Slice, run: Path, edit: Callable[[EpisodeRecord], EpisodeRecord], reason: str
) -> None:
    name = episode(run, "FULL", 3)
    line = edit_record(run, name, edit)
    refused(run, real.reference, f"{SHARD}, line {line}, {name}, event ", reason)


def test_conditions_that_do_not_start_from_one_ranking_are_refused(real: Slice, run: Path) -> None:
    def swap(record: EpisodeRecord) -> EpisodeRecord:
        events: list[Any] = list(record.events)
        ranking = events[0].ranking
        events[0] = replace(events[0], ranking=(*ranking[:6], *reversed(ranking[6:])))
        return with_events(record, events)

    line = edit_record(run, episode(run, "SR-5-STATIC", 1), swap)
    refused(run, real.reference, "the conditions start from different rankings", f"{SHARD}, line {line}")


def test_an_outcome_relabelled_as_infrastructure_leaves_the_run_incomplete(real: Slice, run: Path) -> None:
    name = episode(run, "SR-5-STATE-AWARE", 1)
    edit_record(run, name, edit_event(Ended, reason="infrastructure"))
    refused(run, real.reference, "not complete: 29 of 30", name)


@pytest.mark.parametrize("attempt", [2, 0, 7])
def test_an_attempt_out_of_order_is_refused(real: Slice, run: Path, attempt: int) -> None:
    name = episode(run, "ORACLE")
    line = edit_record(run, name, lambda record: replace(record, attempt=attempt))
    refused(run, real.reference, f"{SHARD}, line {line}: attempt {attempt} of {name} where 1 comes next")


def test_failed_attempts_are_counted_and_not_scored(real: Slice, run: Path) -> None:
    before: CompleteRun = read_complete_run(run, real.reference)
    records = read_records(run)
    failed = replace(records[0], events=(Ended(0, "infrastructure", "MemoryError: ", ()),))
    write_records(run, [failed, replace(failed, attempt=2), replace(records[0], attempt=3), *records[1:]])
    after = read_complete_run(run, real.reference)
    assert after.infrastructure_attempts == 2 and after.rows == before.rows


def failed_attempt(record: EpisodeRecord, kept: int, **end: Any) -> EpisodeRecord:
    """The attempt that an infrastructure failure ended after `kept` events; `end` changes parts of its end."""
    turn = record.events[kept - 1].turn if kept else 0
    parts = {"turn": turn, "reason": "infrastructure", "detail": "MemoryError: ", "steps_completed": (), **end}
    return with_events(record, [*record.events[:kept], Ended(**parts)])


def put_before(folder: Path, name: str, failed: Callable[[EpisodeRecord], EpisodeRecord]) -> int:
    """Put a failed attempt before an episode; returns its line."""
    records = read_records(folder)
    index = next(n for n, record in enumerate(records) if record.episode_id == name)
    records[index : index + 1] = [failed(records[index]), replace(records[index], attempt=2)]
    write_records(folder, records)
    return index + 2


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["SR-5-STATIC", "SR-PROGRESSIVE-STATIC", "SR-5-STATE-AWARE", "FULL", "ORACLE"])
def test_an_attempt_may_have_ended_after_any_event_of_its_first_turn(
    real: Slice, tmp_path: Path, condition: str
) -> None:
    before = read_complete_run(real.template, real.reference)
    for kept in range(5):
        run = real.copy(tmp_path / str(kept))
        put_before(run, episode(run, condition), partial(failed_attempt, kept=kept))
        after = read_complete_run(run, real.reference)
        assert after.infrastructure_attempts == 1 and after.rows == before.rows


FAILED: dict[str, tuple[Callable[[EpisodeRecord], EpisodeRecord], str]] = {
    "another turn": (lambda r: failed_attempt(r, 2, turn=3), "ends in turn 3, the events in turn 1"),
    "steps of nothing": (lambda r: failed_attempt(r, 2, steps_completed=("x",)), "the events give []"),
    "a call in flight and steps of others": (
        lambda r: failed_attempt(r, 4, steps_completed=("x", "y")), "the events give []",
    ),
    "no opening": (lambda r: with_events(r, failed_attempt(r, 2).events[1:]), "before anything was exposed"),
    "the opening twice": (
        lambda r: with_events(r, [r.events[0], *failed_attempt(r, 2).events]), "where a change belongs",
    ),
    "two ends": (
        lambda r: with_events(r, [*failed_attempt(r, 2).events, failed_attempt(r, 0).events[0]]), "events follow the end",
    ),
    "after the last step": (
        lambda r: failed_attempt(r, len(r.events) - 1, steps_completed=r.events[-1].steps_completed),  # type: ignore[union-attr]
        "'infrastructure' contradicts the events",
    ),
    "other tokens": (
        lambda r: with_events(r, [r.events[0], ModelTurn(1, 9, 3), failed_attempt(r, 2).events[-1]]), "tokens where",
    ),
    "less shown": (lambda r: failed_attempt(edit_event(Exposed, routes=())(r), 1), "something other than the whole catalog"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_attempt_is_checked_as_far_as_it_goes(real: Slice, run: Path, name: str) -> None:
    failed, reason = FAILED[name]
    chosen = episode(run, "FULL", 2)
    line = put_before(run, chosen, failed)
    refused(run, real.reference, f"{SHARD}, line {line}, {chosen}, event ", reason)


def test_a_failed_attempt_starts_from_the_ranking_of_the_others(real: Slice, run: Path) -> None:
    def failed(record: EpisodeRecord) -> EpisodeRecord:
        opening: Any = record.events[0]
        ranking = (*opening.ranking[:6], *reversed(opening.ranking[6:]))
        return with_events(record, [replace(opening, ranking=ranking), failed_attempt(record, 0).events[0]])

    line = put_before(run, episode(run, "SR-5-STATIC", 1), failed)
    refused(run, real.reference, "the conditions start from different rankings", f"{SHARD}, line {line}")


def test_a_time_limit_is_refused_in_a_run_without_one(real: Slice, run: Path) -> None:
    end = Ended(0, "time_limit", "the episode took more than 2 s", ())
    line = edit_record(run, episode(run, "FULL", 2), lambda record: with_events(record, [end]))
    refused(run, real.reference, f"{SHARD}, line {line}: ", "ended by a time limit, and this run has none")


def test_a_division_without_end_is_no_shard(real: Slice, run: Path) -> None:
    (run / SHARD).rename(run / "episodes-00001-of-100000000.jsonl")
    refused(run, real.reference, "episodes-00001-of-100000000.jsonl: not the name of a shard")
