"""A job and its outcome, the same in every engine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from conditions.running.engines.timeout import EpisodeTimeLimitError, time_limit, too_long
from conditions.running.plan import Unit
from conditions.running.runner import Runner
from schemarouter.records import SCHEMA_VERSION, Ended, EpisodeRecord, ModelTurn, encode


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that a worker has to know.

    Attributes:
        episode_seconds: Seconds that an episode may take; None without a limit.
        count_output: Whether the tokens that an agent writes are counted.
        watched: Whether the run has a limit on spending. Workers then get one episode at a time, since every episode that is
            already submitted may exceed the limit.

    """

    episode_seconds: float | None = None
    count_output: bool = False
    watched: bool = False


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Job:
    """An episode to be run, and which attempt at it this is."""

    unit: Unit
    attempt: int


@dataclass(frozen=True, slots=True)
class Done:
    """An attempt that has ended: its record as bytes, its wall time, and the tokens that its agent read and wrote.

    `failure` describes an infrastructure failure and is empty where there was none; a `final` one stops the run at once.
    """

    unit: Unit
    attempt: int
    record: bytes
    wall_ms: float
    input_tokens: int = 0
    output_tokens: int = 0
    failure: str = ""
    final: bool = False


def perform(runner: Runner, job: Job, limits: Limits) -> Done:
    """Run an episode until it ends or its time is up; one that exceeded its time limit has failed, however it ended."""
    if limits.episode_seconds is not None:
        runner.prepare(job.unit.catalog)  # Building is not part of this episode's time.
    start = time.perf_counter_ns()
    try:
        with time_limit(limits.episode_seconds):
            record = runner.run(job.unit, attempt=job.attempt)
    except EpisodeTimeLimitError as late:
        # The time was up before the episode began or after it ended, when its loop could not record that.
        return lost(job, "time_limit", str(late))
    wall_ms = (time.perf_counter_ns() - start) / 1e6
    if limits.episode_seconds is not None and wall_ms > limits.episode_seconds * 1e3 and not record.out_of_time:
        # Its code swallowed the timer's error, or no timer could interrupt it.
        return lost(job, "time_limit", too_long(limits.episode_seconds))
    written = runner.output_tokens(record) if limits.count_output else 0
    failure = record.events[-1].detail if record.infrastructure else ""  # type: ignore[union-attr]
    return Done(job.unit, job.attempt, encode(record), wall_ms, input_tokens(record), written, failure)


def input_tokens(record: EpisodeRecord) -> int:
    """Tokens of all prompts of an attempt."""
    return sum(event.input_tokens for event in record.events if isinstance(event, ModelTurn))


def lost(job: Job, reason: Literal["infrastructure", "time_limit"], detail: str, *, final: bool = False) -> Done:
    """An attempt of which only the end is known: its process died, or had to be killed."""
    unit = job.unit
    events = (Ended(0, reason, detail, ()),)
    record = EpisodeRecord(SCHEMA_VERSION, unit.task, unit.catalog, unit.condition, job.attempt, events, unit.repeat)
    failure = detail if reason == "infrastructure" else ""
    return Done(unit, job.attempt, encode(record), 0.0, failure=failure, final=final)
