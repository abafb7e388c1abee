"""One small real run, made once: six development tasks in six languages under all conditions."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from conditions.running.engines.base import InProcess
from conditions.running.execute import execute
from conditions.running.plan import make_plan
from conditions.running.runner import Runner
from gates.identities import ReferenceData
from preregistration.protocol import Protocol, load_protocol
from schemarouter.catalog import Catalog
from schemarouter.retrieval.spec import parse
from surface.loader import Surface, load_catalogs, load_surface
from tests.toys import identities_of, run_header


@dataclass(frozen=True)
class Slice:
    """The slice as it was run; a test takes a copy of the folder."""

    template: Path
    reference: ReferenceData
    protocol: Protocol
    surface: Surface
    catalogs: dict[int, Catalog]
    tasks: tuple[str, ...]

    def copy(self, folder: Path) -> Path:
        """A copy to be damaged."""
        return Path(shutil.copytree(self.template, folder / "run"))


def one_task_a_language(surface: Surface) -> list[str]:
    """One task of each language, together of all strata."""
    by_language: dict[str, str] = {}
    strata: set[str] = set()
    for task in surface.tasks:
        name, language = task.prompt.id, task.prompt.language
        if language not in by_language and (surface.stratum(name) not in strata or len(strata) == 5):
            by_language[language] = name
            strata.add(surface.stratum(name))
    return sorted(by_language.values())


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    whole, surface = load_protocol("development"), load_surface("development")
    size = min(whole.catalogs)
    statistics = whole.statistics.model_copy(update={"iterations": 200})
    protocol = whole.model_copy(update={"catalogs": (size,), "statistics": statistics})
    catalogs = load_catalogs([size])
    plan = make_plan(protocol, surface, tasks=one_task_a_language(surface))
    identities = identities_of(surface, catalogs)
    folder = tmp_path_factory.mktemp("real") / "run"
    runner = Runner(protocol, surface, catalogs, retriever=parse("bm25"), agent=parse("reference"))
    execute(folder, run_header(protocol, surface, plan, identities), plan, InProcess(runner), lambda done: None)
    reference = ReferenceData(protocol, surface, catalogs, lambda run: identities)
    return Slice(folder, reference, protocol, surface, catalogs, plan.tasks)
