"""A run made again: the retriever and the agent that its header names, on every episode, held against its records.

The aggregate replays what tools answered and what was allowed; it believes rankings and the agent's choices. This believes
neither.
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

    Raises InvalidRunError with shard and line at the first record that comes out otherwise. Of attempts that ended because their
    time was up, what led there is compared; those that ended by an infrastructure failure are passed over.
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
            held = line.record
            unit = Unit(held.task, held.catalog, held.condition, held.repeat)
            again = runner.run(unit, attempt=held.attempt)
            # By their bytes: to Python 1, 1.0 and true are one value.
            if encode(_comparable(again, held)) != encode(held):
                raise InvalidRunError(f"{line.location}, {held.episode_id}: {_difference(held, again)}")
            done += 1
            progress(done)
    return done


def _comparable(again: EpisodeRecord, held: EpisodeRecord) -> EpisodeRecord:
    """What was made again, in the version of the record and, where its time was up, cut off where that was."""
    events = again.events
    if held.out_of_time:
        events = (*events[: len(held.events) - 1], held.events[-1])
    return replace(again, schema_version=held.schema_version, events=events)


def _difference(held: EpisodeRecord, again: EpisodeRecord) -> str:
    """What comes out otherwise, at the first event that does."""
    for index, (one, other) in enumerate(zip(held.events, again.events, strict=False)):
        if encode_event(one) != encode_event(other):
            return f"event {index} ({type(one).__name__}) comes out otherwise when the episode is run again."
    return f"{len(held.events)} events on record, {len(again.events)} when the episode is run again."
