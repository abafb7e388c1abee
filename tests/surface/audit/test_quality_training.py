"""The training tasks, alone and together with the development tasks: varied, natural, hard and solvable."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from conditions.running.plan import make_plan
from conditions.running.runner import Runner
from preregistration.protocol import load_protocol
from schemarouter.catalog import Catalog
from schemarouter.errors import InvalidRunError
from schemarouter.records import Ended
from schemarouter.retrieval.spec import parse
from surface.audit import quality
from surface.audit.figure import Figure
from surface.audit.quality import BOUNDS, bm25_difficulty, figures, proofs
from surface.audit.validate import check_surface
from surface.loader import TOGETHER, Surface, load_catalogs, load_surface, together

pytestmark = pytest.mark.slow

PROTOCOL = load_protocol("training")
TASKS = 180


@pytest.fixture(scope="module")
def surface() -> Surface:
    return load_surface("training")


@pytest.fixture(scope="module")
def both(surface: Surface) -> Surface:
    return together(load_surface("development"), surface)


@pytest.fixture(scope="module")
def catalogs() -> dict[int, Catalog]:
    return load_catalogs(PROTOCOL.catalogs)


@pytest.fixture(scope="module")
def of_training(surface: Surface, catalogs: dict[int, Catalog]) -> list[Figure]:
    return figures(surface, PROTOCOL, catalogs, BOUNDS["training"])


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


def test_every_figure_is_within_its_bound(of_training: list[Figure]) -> None:
    assert outside(of_training) == []


def test_every_figure_of_all_270_is_within_its_bound(both: Surface, of_both: list[Figure]) -> None:
    assert len(both.tasks) == 270
    assert outside(of_both) == []


def test_plans_are_carried_out_and_one_wrong_step_leaves_a_task_unfinished(proved: list[Figure]) -> None:
    assert outside(proved) == []


@pytest.mark.parametrize("condition", ["ORACLE", "FULL"])
def test_full_and_oracle_with_the_reference_agent_complete_every_training_task_at_every_size(
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
    surface: Surface, catalogs: dict[int, Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "build_retriever", lambda *_: pytest.fail("built"))
    monkeypatch.setattr(quality, "encoder_similarity", lambda _: Figure("left out", ""))
    for name in ("frozen", TOGETHER):
        looked_at = replace(surface, name=name)
        with pytest.raises(InvalidRunError, match=f"development and training alone, not of {name}"):
            bm25_difficulty(looked_at, catalogs[max(catalogs)], top_k=1)
        assert not [figure for figure in figures(looked_at, PROTOCOL, catalogs, BOUNDS[name]) if "BM25" in figure.name]
