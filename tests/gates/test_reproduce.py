"""A reproduced run: forged rankings and choices, which a replay has to trust, differ when the episode is run again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from conditions.running.engines.base import InProcess
from conditions.running.execute import execute
from conditions.running.plan import make_plan
from conditions.running.runner import Runner
from conditions.storage.run_directory import RUN_FILE, read_header
from gates.aggregate import read_complete_run
from gates.reproduce import reproduce
from schemarouter.errors import InvalidRunError
from schemarouter.records import Called, Ended, Exposed
from schemarouter.retrieval.spec import parse
from tests.gates.conftest import Slice
from tests.toys import (
    CATALOGS,
    SPEC,
    SURFACE,
    changed,
    edit_record,
    identities_of,
    read_records,
    run_header,
    toy_protocol,
    toy_run,
    with_events,
    write_records,
)


def named(folder: Path) -> Path:
    """The slice's header with the specs that made it."""
    run = read_header(folder)
    records = read_records(folder)
    identities = changed(run.identities, retriever="bm25", agent="reference")
    (folder / RUN_FILE).write_bytes(changed(run, identities=identities).to_bytes())
    write_records(folder, records)
    return folder


def test_an_honest_run_comes_out_the_same(real: Slice, tmp_path: Path) -> None:
    progress: list[int] = []
    assert reproduce(named(real.copy(tmp_path)), real.reference, progress.append) == 30
    assert progress == list(range(1, 31))


def test_a_ranking_that_the_retriever_does_not_give_is_refused_with_its_location(real: Slice, tmp_path: Path) -> None:
    folder = named(real.copy(tmp_path))
    names = [r.episode_id for r in read_records(folder) if r.condition.startswith("SR-")]
    task = names[0].partition("/")[0]

    def swapped(record: Any) -> Any:
        events = [
            replace(e, ranking=(*e.ranking[:-2], e.ranking[-1], e.ranking[-2])) if isinstance(e, Exposed) else e
            for e in record.events
        ]
        return with_events(record, events)

    lines = [edit_record(folder, name, swapped) for name in names if name.startswith(f"{task}/")]
    # The replay cannot know: every condition opens with the same forged tail.
    read_complete_run(folder, replace(real.reference, identities=lambda run: run.identities))
    with pytest.raises(InvalidRunError, match=rf"line {min(lines)}, {re.escape(names[0])}: event 0 \(Exposed\)"):
        reproduce(folder, real.reference, lambda done: None)


def test_a_number_of_another_type_is_another_record(real: Slice, tmp_path: Path) -> None:
    # Its last call sets a pressure of 380.0: nothing follows whose token count would differ.
    plan = make_plan(real.protocol, real.surface, tasks=["dev-de-07"], conditions=["FULL"])
    identities = changed(identities_of(real.surface, real.catalogs), retriever="bm25", agent="reference")
    runner = Runner(real.protocol, real.surface, real.catalogs, retriever=parse("bm25"), agent=parse("reference"))
    folder, reference_data = tmp_path / "run", replace(real.reference, identities=lambda run: identities)
    header = run_header(real.protocol, real.surface, plan, identities)
    execute(folder, header, plan, InProcess(runner), lambda done: None)

    def retyped(record: Any) -> Any:
        call = [event for event in record.events if isinstance(event, Called)][-1]
        assert type(call.arguments["pressure"]) is float
        arguments = {**call.arguments, "pressure": int(call.arguments["pressure"])}
        return with_events(record, [replace(e, arguments=arguments) if e is call else e for e in record.events])

    line = edit_record(folder, plan.units[0].episode_id, retyped)
    read_complete_run(folder, reference_data)
    with pytest.raises(InvalidRunError, match=rf"line {line}, dev-de-07/100/FULL: event \d+ \(Called\)"):
        reproduce(folder, reference_data, lambda done: None)


def test_a_run_named_after_another_retriever_is_refused(real: Slice, tmp_path: Path) -> None:
    folder = named(real.copy(tmp_path))
    run = read_header(folder)
    (folder / RUN_FILE).write_bytes(changed(run, identities=changed(run.identities, retriever="random")).to_bytes())
    with pytest.raises(InvalidRunError, match=r"differs when|on record"):
        reproduce(folder, real.reference, lambda done: None)


def test_repeats_are_run_again_each_with_its_seed(tmp_path: Path) -> None:
    runner = Runner(toy_protocol(), SURFACE, CATALOGS, retriever=SPEC, agent=parse("fallible(slip=0.5)"))
    reference_data = toy_run(tmp_path / "run", runner, repeats=2, limit=60)
    folder = tmp_path / "run"
    run, records = read_header(folder), read_records(folder)
    identities = changed(run.identities, retriever=str(SPEC), agent="fallible(slip=0.5)")
    (folder / RUN_FILE).write_bytes(changed(run, identities=identities).to_bytes())
    write_records(folder, records)
    assert reproduce(folder, reference_data, lambda done: None) == 60
    (folder / RUN_FILE).write_bytes(changed(run, identities=changed(identities, agent="fallible(seed=9)")).to_bytes())
    with pytest.raises(InvalidRunError, match=r"differs when|on record"):
        reproduce(folder, reference_data, lambda done: None)


@pytest.mark.parametrize(("reason", "count"), [("infrastructure", 29), ("time_limit", 30)])
def test_an_episode_that_was_cut_off_is_compared_up_to_there(
    reason: Literal["infrastructure", "time_limit"], count: int, real: Slice, tmp_path: Path
) -> None:
    folder = named(real.copy(tmp_path))
    name = read_records(folder)[3].episode_id
    end = Ended(0, reason, "the episode took more than 2 s", ())
    edit_record(folder, name, lambda record: with_events(record, [record.events[0], end]))
    assert reproduce(folder, real.reference, lambda done: None) == count

    def forged(record: Any) -> Any:
        return with_events(record, [replace(record.events[0], can_turn=not record.events[0].can_turn), end])

    edit_record(folder, name, forged)
    if reason == "time_limit":
        with pytest.raises(InvalidRunError, match=r"event 0 \(Exposed\)"):
            reproduce(folder, real.reference, lambda done: None)
