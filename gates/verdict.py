"""The verdict of the gate: the document ``verdict.json``, field by field."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from conditions.storage.run_directory import Identities, Provenance
from gates.aggregate import EpisodesCounted, MeasureSums
from gates.intervals import Interval
from gates.repeats import RepeatedMeasure
from schemarouter.files import Document, VersionOne

Pair = Annotated[tuple[int, int], Field(strict=False)]


class Estimate(MeasureSums):
    """A measure of a condition over all its episodes."""

    intervals: dict[str, Interval]
    """By method; empty for a measure that no interval is made for, and where the measure is undefined."""


class SliceEstimate(MeasureSums):
    """A rate of a condition over part of its episodes."""

    interval: Interval
    """Logit-t interval over the tasks of the part."""


class Criterion(Document):
    """One of the six criteria."""

    number: int
    """1 to 6, as the protocol numbers them."""
    title: str
    """What is required."""
    passed: bool
    """Whether it holds, on point estimates compared as integers."""
    undefined: bool
    """Whether a denominator is 0; such a criterion fails."""
    detail: str
    """The sums it was judged on, in words."""
    sums: dict[str, Pair]
    """Numerator and denominator by condition (``state_aware``, ``progressive``), or of all."""
    estimate: float | None
    """The rate, or the difference of two; null where undefined."""
    intervals: dict[str, Interval]
    """Intervals of the estimate by method."""
    families: Interval | None = None
    """Percentile interval when families of tasks are resampled instead of tasks, of criteria 1 to 4; it decides nothing."""
    supported_by: dict[str, bool]
    """By method, whether the interval alone would make the criterion hold."""


class VerdictProvenance(Document):
    """What the verdict rests on."""

    identities: Identities
    """As in the run's header."""
    plan_fingerprint: str
    """The grid of episodes."""
    provenance: Provenance
    """The code under which the run began."""
    counts_sha256: str
    """SHA-256 of the bootstrap's counts matrix: how often each task is drawn in each iteration."""
    episodes: EpisodesCounted
    """How many episodes count."""
    agent_note: str
    """What the agent declares of itself."""
    retriever_note: str
    """What a reader has to know of the retriever; empty where there is nothing."""


class Verdict(Document):
    """verdict.json: the six criteria, whether all hold, and every measure beneath them."""

    schema_version: VersionOne
    """Version of this document."""
    stamp: str
    """Why the run is exploratory; empty for the locked protocol alone."""
    confirmatory: bool
    """Whether this is the verdict of the locked protocol on its own surface."""
    passed: bool
    """Whether all six criteria hold."""
    criteria: tuple[Criterion, ...] = Field(strict=False)
    """All six, in order."""
    conditions: dict[str, dict[str, Estimate]]
    """Every measure by condition."""
    endings: dict[str, dict[str, int]]
    """As in the aggregate."""
    slices: dict[str, dict[str, dict[str, dict[str, SliceEstimate]]]]
    """Three rates by slicing (``catalog``, ``language``, ``stratum``), group and condition."""
    repeats: dict[str, dict[str, RepeatedMeasure]]
    """As in the aggregate."""
    notes: tuple[str, ...] = Field(strict=False)
    """Notes to be read beside the tables."""
    provenance: VerdictProvenance
    """What the verdict rests on."""
