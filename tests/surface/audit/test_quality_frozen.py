"""The frozen surface, alone and together with the development surface: varied, natural, hard and solvable."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from conditions.running.plan import make_plan
from conditions.running.runner import Runner
from preregistration.protocol import load_protocol
from schemarouter.catalog import Catalog
from schemarouter.errors import InvalidRunError
from schemarouter.records import Ended
from schemarouter.retrieval.spec import parse
from surface.audit import quality
from surface.audit.quality import BOUNDS, TOGETHER, Figure, bm25_difficulty, figures, proofs, together
from surface.audit.validate import check_surface
from surface.loader import ROOT, Surface, load_catalogs, load_surface
from surface.task import chain

pytestmark = pytest.mark.slow

PROTOCOL = load_protocol("frozen")
TASKS = 180
AUDIT = (Path(ROOT) / "AUDIT.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def surface() -> Surface:
    return load_surface("frozen")


@pytest.fixture(scope="module")
def both(surface: Surface) -> Surface:
    return together(load_surface("development"), surface)


@pytest.fixture(scope="module")
def catalogs() -> dict[int, Catalog]:
    return load_catalogs(PROTOCOL.catalogs)


@pytest.fixture(scope="module")
def of_frozen(surface: Surface, catalogs: dict[int, Catalog]) -> list[Figure]:
    return figures(surface, PROTOCOL, catalogs, BOUNDS["frozen"])


@pytest.fixture(scope="module")
def of_both(both: Surface, catalogs: dict[int, Catalog]) -> list[Figure]:
    return figures(both, PROTOCOL, catalogs, BOUNDS[TOGETHER])


@pytest.fixture(scope="module")
def proved(surface: Surface, catalogs: dict[int, Catalog]) -> list[Figure]:
    return proofs(surface, PROTOCOL, catalogs)


def outside(found: list[Figure]) -> list[Figure]:
    for figure in found:
        print(f"{figure.name}: {figure.value} {figure.bound}")
    return [figure for figure in found if not figure.holds]


def test_every_cell_holds_its_tasks_and_every_task_is_sound(surface: Surface, catalogs: dict[int, Catalog]) -> None:
    assert check_surface(surface, catalogs[min(catalogs)], PROTOCOL) == {}
    assert len(surface.tasks) == TASKS


def test_every_figure_is_within_its_bound(of_frozen: list[Figure]) -> None:
    assert outside(of_frozen) == []


def test_every_figure_of_all_270_is_within_its_bound(both: Surface, of_both: list[Figure]) -> None:
    assert len(both.tasks) == 270
    assert outside(of_both) == []


def test_plans_are_carried_out_and_one_wrong_step_leaves_a_task_unfinished(proved: list[Figure]) -> None:
    assert outside(proved) == []


def test_the_audit_counts_frozen_tasks_with_the_chain_of_a_development_task(surface: Surface) -> None:
    known = {tuple(chain(task.key)) for task in load_surface("development").tasks}
    shared = [task.prompt.id for task in surface.tasks if tuple(chain(task.key)) in known]
    print(f"{len(shared)}: {' '.join(shared)}")
    assert f"{len(shared)} frozen tasks have the chain of a development task" in AUDIT


@pytest.mark.parametrize("condition", ["ORACLE", "FULL"])
def test_full_and_oracle_with_the_reference_agent_complete_every_frozen_task_at_every_size(
    condition: str, surface: Surface, catalogs: dict[int, Catalog]
) -> None:
    runner = Runner(PROTOCOL, surface, catalogs, retriever=parse("random"), agent=parse("reference"))
    passed: Counter[int] = Counter()
    failed = []
    for unit in make_plan(PROTOCOL, surface, conditions=[condition]).units:
        last = runner.run(unit).events[-1]
        if isinstance(last, Ended) and last.reason == "completed":
            passed[unit.catalog] += 1
        else:
            failed.append(unit.episode_id)
    print(f"{condition}: " + ", ".join(f"{passed[size]} of {TASKS} at {size}" for size in catalogs))
    assert failed == []
    assert passed == dict.fromkeys(catalogs, TASKS)


def test_no_retriever_is_built_over_frozen_prompts(
    surface: Surface, both: Surface, catalogs: dict[int, Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "build_retriever", lambda *_: pytest.fail("built"))
    for name, looked_at in (("frozen", surface), (TOGETHER, both)):
        with pytest.raises(InvalidRunError, match=f"development surface alone, not of {name}"):
            bm25_difficulty(looked_at, catalogs[max(catalogs)], top_k=1)
        monkeypatch.setattr(quality, "encoder_similarity", lambda _: Figure("left out", ""))
        assert not [figure for figure in figures(looked_at, PROTOCOL, catalogs, BOUNDS[name]) if "BM25" in figure.name]


def test_the_audit_states_every_figure(of_frozen: list[Figure], of_both: list[Figure], proved: list[Figure]) -> None:
    for figure in (*of_frozen, *proved):
        assert f"| {figure.name} | {figure.value} |" in AUDIT
    for figure in of_both:
        assert figure.value in AUDIT, figure.name


def test_the_audit_speaks_of_every_cell() -> None:
    for stratum in PROTOCOL.strata:
        for language in PROTOCOL.languages:
            assert f"**{stratum}/{language}**" in AUDIT
