"""The preregistration, typed: every number of the experiment is in its JSON file and nowhere else."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from schemarouter.canonical import fingerprint
from schemarouter.errors import InvalidRunError, UsageError, unknown
from schemarouter.files import read_model

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
FILES = {
    "development": "development-v2.json",
    "training": "training-v2.json",
    "frozen": "corrective-reretrieval-v2.json",
}
SurfaceName = Literal["development", "training", "frozen"]


_Item = TypeVar("_Item", int, str)


def _each_once(values: tuple[_Item, ...]) -> tuple[_Item, ...]:
    twice = sorted({str(value) for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"given twice: {', '.join(twice)}; each is listed once")
    return values


def _widening(stages: tuple[int, ...]) -> tuple[int, ...]:
    if list(stages) != sorted(set(stages)):
        raise ValueError("stages widen a list, so each is larger than the one before it")
    return stages


Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1), AfterValidator(_each_once)]
Count = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class ConditionRules(_Part):
    """Numbers of the conditions."""

    names: Words
    top_k: int = Field(ge=1)
    progressive_stages: Annotated[tuple[Count, ...], AfterValidator(_widening)] = Field(strict=False, min_length=1)
    refresh_budget: int = Field(ge=0)

    @property
    def ranking_depth(self) -> int:
        """How many entries of an opening ranking are kept: as many as any SR condition can come to expose."""
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
    seed: int = Field(ge=0)
    level: float = Field(gt=0, lt=1)
    stratify_by: Literal["stratum_language", "stratum"]


class Protocol(_Part):
    """One preregistered experiment."""

    schema_version: Literal[1]
    name: str
    surface: SurfaceName
    confirmatory: bool
    question: str
    catalogs: Annotated[tuple[Count, ...], AfterValidator(_each_once)] = Field(strict=False, min_length=1)
    tasks_per_cell: int = Field(ge=1)
    strata: Words
    languages: Words
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

    @property
    def results(self) -> Path:
        """The folder of the confirmatory result."""
        return RESULTS / self.name


def load_protocol(surface: str = "frozen", folder: Path = FOLDER) -> Protocol:
    """Read the protocol of a surface. Raises InvalidRunError when its file is missing, of another surface or unreadable."""
    if surface not in FILES:
        raise UsageError(unknown("surface", surface, FILES))
    path = folder / FILES[surface]
    protocol = read_model(path, Protocol, InvalidRunError)
    if protocol.surface != surface:
        raise InvalidRunError(f"{path.name}: is the protocol of the {protocol.surface} surface.")
    return protocol
