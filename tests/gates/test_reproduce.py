"""A run made again: forged rankings and choices, which a replay has to believe, come out otherwise."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conditions.store import RUN_FILE, pretty_json, read_run
from gates.aggregate import aggregate
from gates.reproduce import reproduce
from schemarouter.errors import InvalidRunError
from schemarouter.records import Exposed
from tests.gates.conftest import Slice
from tests.toys import edit_record, read_records, with_events, write_records


def named(folder: Path) -> Path:
    """The slice's header with the specs that made it."""
    run = read_run(folder)
    identities = {**run["identities"], "retriever": "bm25", "agent": "reference"}
    records = read_records(folder)
    (folder / RUN_FILE).write_bytes(pretty_json({**run, "identities": identities}))
    write_records(folder, records)
    return folder


def test_an_honest_run_comes_out_the_same(real: Slice, tmp_path: Path) -> None:
    told: list[int] = []
    assert reproduce(named(real.copy(tmp_path)), real.world, told.append) == 30
    assert told == list(range(1, 31))


def test_a_ranking_that_the_retriever_does_not_give_is_refused_with_its_place(real: Slice, tmp_path: Path) -> None:
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
    # The replay cannot know: every arm opens with the same forged tail.
    aggregate(folder, replace(real.world, identities=lambda run: run["identities"]))
    with pytest.raises(InvalidRunError, match=rf"line {min(lines)}, {re.escape(names[0])}: event 0 \(Exposed\)"):
        reproduce(folder, real.world, lambda done: None)


def test_a_run_named_after_another_retriever_is_refused(real: Slice, tmp_path: Path) -> None:
    folder = named(real.copy(tmp_path))
    run = read_run(folder)
    (folder / RUN_FILE).write_bytes(pretty_json({**run, "identities": {**run["identities"], "retriever": "random"}}))
    with pytest.raises(InvalidRunError, match=r"comes out otherwise|on record"):
        reproduce(folder, real.world, lambda done: None)
