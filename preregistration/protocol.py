"""The preregistration, typed: every number of the experiment stands in its JSON file and nowhere else."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from schemarouter.catalog import read_model
from schemarouter.errors import InvalidRunError, UsageError, unknown
from schemarouter.identity import fingerprint

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
FILES = {"development": "development-v1.json", "frozen": "corrective-reretrieval-v1.json"}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class ConditionRules(_Part):
    """Numbers of the conditions."""

    names: tuple[str, ...] = Field(strict=False)
    top_k: int = Field(ge=1)
    progressive_stages: tuple[int, ...] = Field(strict=False)
    refresh_budget: int = Field(ge=0)

    @property
    def ranking_depth(self) -> int:
        """How deep an opening ranking is kept: as many candidates as any SR arm can come to expose."""
        return max(self.progressive_stages[-1], self.top_k * (1 + self.refresh_budget))


class EpisodeRules(_Part):
    """Numbers of the episode loop."""

    max_model_turns: int = Field(ge=1)
    max_steps_and_failures: int = Field(ge=1)


class GateRules(_Part):
    """Thresholds of the six criteria, as integers."""

    max_pass_loss_percentage_points: int
    min_recall_percent: int
    max_unauthorised_destructive: int
    min_integrity_percent: int


class StatisticsRules(_Part):
    """How intervals are drawn."""

    iterations: int = Field(ge=1)
    seed: int
    level: float = Field(gt=0, lt=1)
    stratify_by: Literal["stratum_language", "stratum"]


class Protocol(_Part):
    """One preregistered experiment."""

    schema_version: int
    name: str
    surface: Literal["development", "frozen"]
    confirmatory: bool
    question: str
    catalogs: tuple[int, ...] = Field(strict=False)
    tasks_per_cell: int = Field(ge=1)
    strata: tuple[str, ...] = Field(strict=False)
    languages: tuple[str, ...] = Field(strict=False)
    conditions: ConditionRules
    episode: EpisodeRules
    gate: GateRules
    statistics: StatisticsRules
    retriever: str
    agent: str
    deviations: tuple[str, ...] = Field(strict=False)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over everything the protocol says."""
        return fingerprint(self.model_dump(mode="json"))


def load_protocol(surface: str = "frozen", folder: Path = FOLDER) -> Protocol:
    """Read the protocol of a surface. Raises InvalidRunError when its file is missing or altered beyond reading."""
    if surface not in FILES:
        raise UsageError(unknown("surface", surface, FILES))
    path = folder / FILES[surface]
    return read_model(path, Protocol, InvalidRunError)
