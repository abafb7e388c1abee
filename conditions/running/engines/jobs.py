"""A unit of work and what comes of it, the same in whichever process it is done."""

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
    """How long an episode may take, in seconds, and whether the tokens that its agent wrote are counted (for their price).

    Where what a run spends is `watched`, its workers are given one episode at a time: what is out goes beyond a limit.
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

    `failure` says how the machine failed, empty where it did not; after a `final` one the run cannot go on by itself.
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
    """Run an episode to its end, or to the end of its time; one that took longer than it may has failed, however it ended."""
    if limits.episode_seconds is not None:
        runner.prepare(job.unit.catalog)  # What is built once is not this episode's time.
    start = time.perf_counter_ns()
    try:
        with time_limit(limits.episode_seconds):
            record = runner.run(job.unit, attempt=job.attempt)
    except EpisodeTimeLimitError as late:
        # The time was up before the episode had begun or after it had ended, with nobody there to note it.
        return lost(job, "time_limit", str(late))
    wall_ms = (time.perf_counter_ns() - start) / 1e6
    if limits.episode_seconds is not None and wall_ms > limits.episode_seconds * 1e3 and not record.out_of_time:
        # Its code went on in spite of the timer, or no timer could reach it.
        return lost(job, "time_limit", too_long(limits.episode_seconds))
    written = runner.output_tokens(record) if limits.count_output else 0
    failure = record.events[-1].detail if record.infrastructure else ""  # type: ignore[union-attr]
    return Done(
        job.unit, job.attempt, encode(record), wall_ms, input_tokens(record), written, failure, final=bool(failure)
    )


def input_tokens(record: EpisodeRecord) -> int:
    """Tokens of all prompts of an attempt."""
    return sum(event.input_tokens for event in record.events if isinstance(event, ModelTurn))


def lost(job: Job, reason: Literal["infrastructure", "time_limit"], detail: str, *, final: bool = False) -> Done:
    """An attempt of which nothing is known but how it ended: its process died, or had to be killed."""
    unit = job.unit
    events = (Ended(0, reason, detail, ()),)
    record = EpisodeRecord(SCHEMA_VERSION, unit.task, unit.catalog, unit.condition, job.attempt, events, unit.repeat)
    failure = detail if reason == "infrastructure" else ""
    return Done(unit, job.attempt, encode(record), 0.0, failure=failure, final=final)
