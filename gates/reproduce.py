"""Reproduces a run: every episode with the retriever and the agent that its header names, compared with its record.

A replay checks what tools answered and what was allowed, and takes rankings and the agent's choices from the record. This
takes nothing from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from conditions.running.plan import Unit
from conditions.running.runner import Runner
from conditions.storage.run_directory import read_header
from conditions.storage.shards import SHARD_GLOB, ShardLine, read_shard
from gates.identities import ReferenceData
from schemarouter.agents import registry as agents
from schemarouter.errors import InvalidRunError
from schemarouter.records import EpisodeRecord, encode, encode_event
from schemarouter.retrieval import registry as retrievers


def reproduce(folder: Path, reference: ReferenceData, progress: Callable[[int], None]) -> int:
    """Run every recorded episode again; returns how many there were.

    Raises InvalidRunError with shard and line at the first record that differs. Attempts that ended by a time limit are
    compared up to there; those that ended by an infrastructure failure are skipped.
    """
    named = read_header(folder).identities
    spec, agent = retrievers.resolve(named.retriever), agents.resolve(named.agent)
    runner = Runner(
        reference.protocol, reference.surface, reference.catalogs, retriever=spec, agent=agent, view=named.catalog_view
    )
    done = 0
    for path in sorted(folder.glob(SHARD_GLOB)):
        for line in read_shard(path):
            if not isinstance(line, ShardLine) or line.record.infrastructure:
                continue
            recorded = line.record
            unit = Unit(recorded.task, recorded.catalog, recorded.condition, recorded.repeat)
            rerun = runner.run(unit, attempt=recorded.attempt)
            # By their bytes: to Python 1, 1.0 and true are one value.
            if encode(_comparable(rerun, recorded)) != encode(recorded):
                raise InvalidRunError(f"{line.location}, {recorded.episode_id}: {_difference(recorded, rerun)}")
            done += 1
            progress(done)
    return done


def _comparable(rerun: EpisodeRecord, recorded: EpisodeRecord) -> EpisodeRecord:
    """The new record in the version of the recorded one, and cut off where that one ran out of time."""
    events = rerun.events
    if recorded.out_of_time:
        events = (*events[: len(recorded.events) - 1], recorded.events[-1])
    return replace(rerun, schema_version=recorded.schema_version, events=events)


def _difference(recorded: EpisodeRecord, rerun: EpisodeRecord) -> str:
    """The first event that differs, or the numbers of events."""
    for index, (one, other) in enumerate(zip(recorded.events, rerun.events, strict=False)):
        if encode_event(one) != encode_event(other):
            return f"event {index} ({type(one).__name__}) differs when the episode is run again."
    return f"{len(recorded.events)} events on record, {len(rerun.events)} when the episode is run again."
