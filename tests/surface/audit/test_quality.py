"""The development surface is varied, natural and hard: every figure is printed, and bounded where it has a bound."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from preregistration.protocol import load_protocol
from schemarouter.catalog import Catalog
from schemarouter.retrieval.language import language_of
from surface.audit.quality import BOUNDS, figures, identifier_kinds
from surface.audit.twins import finishes_with_twin, near_twins, wrong_identifiers
from surface.audit.validate import check_task, folded
from surface.loader import ROOT, Surface, load_catalogs, load_surface

PROTOCOL = load_protocol("development")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def surface() -> Surface:
    return load_surface("development")


@pytest.fixture(scope="module")
def catalogs() -> dict[int, Catalog]:
    return load_catalogs(PROTOCOL.catalogs)


def test_every_figure_is_within_its_bound(surface: Surface, catalogs: dict[int, Catalog]) -> None:
    found = figures(surface, PROTOCOL, catalogs, BOUNDS["development"])
    for figure in found:
        print(f"{figure.name}: {figure.value} {figure.bound}")
    assert [figure for figure in found if not figure.holds] == []


def test_every_plan_is_carried_out_from_observables_at_every_size(
    surface: Surface, catalogs: dict[int, Catalog]
) -> None:
    max_load = PROTOCOL.episode.max_steps_and_failures
    for catalog in catalogs.values():
        problems = {task.prompt.id: list(check_task(task, catalog, max_load=max_load)) for task in surface.tasks}
        assert {name: found for name, found in problems.items() if found} == {}
    print(f"{len(surface.tasks)} plans carried out at {', '.join(map(str, catalogs))}")


def test_a_wrong_twin_leaves_the_task_unfinished(surface: Surface, catalogs: dict[int, Catalog]) -> None:
    catalog = catalogs[max(catalogs)]
    calls, finished = 0, []
    for task in surface.tasks:
        for step in task.key.steps:
            for twin in near_twins(catalog[step.route], catalog):
                if twin.route_id in task.key.required_routes:
                    continue
                calls += 1
                if finishes_with_twin(task, catalog, step.id, twin):
                    finished.append((task.prompt.id, step.id, twin.route_id))
    print(f"{calls} plans in which a twin replaces a step; {len(finished)} finish")
    assert calls > 1000
    assert finished == []


def test_an_identifier_of_the_wrong_provenance_is_refused(surface: Surface, catalogs: dict[int, Catalog]) -> None:
    tried, accepted, bare = 0, [], []
    for task in surface.tasks:
        answers = list(wrong_identifiers(task, catalogs[min(catalogs)]))
        tried += len(answers)
        accepted += [(task.prompt.id, step, name) for step, name, answer in answers if not answer.failed]
        if surface.stratum(task.prompt.id) == "identifier_provenance_propagation" and not answers:
            bare.append(task.prompt.id)
    print(f"{tried} wrong identifiers tried; {len(accepted)} accepted")
    assert accepted == []
    assert bare == [], "identifier tasks without a wrong identifier at hand"


def test_routes_of_all_plans_lie_in_the_smallest_catalog(surface: Surface, catalogs: dict[int, Catalog]) -> None:
    smallest = catalogs[min(catalogs)]
    assert {step.route for task in surface.tasks for step in task.key.steps} <= set(smallest.route_ids)


def test_catalogs_are_nested_and_of_their_size(catalogs: dict[int, Catalog]) -> None:
    sizes = sorted(catalogs)
    for smaller, larger in pairwise(sizes):
        assert set(catalogs[smaller].route_ids) < set(catalogs[larger].route_ids)
    assert [len(catalogs[size]) for size in sizes] == sizes


def test_no_description_names_another_endpoint(catalogs: dict[int, Catalog]) -> None:
    catalog = catalogs[max(catalogs)]
    operations = {item.operation for item in catalog.capabilities if "_" in item.operation}
    for item in catalog.capabilities:
        words = set(re.findall(r"[a-z0-9_.]+", folded(item.description)))
        assert not words & (operations | set(catalog.route_ids)), item.route_id


def test_every_semantic_id_is_in_the_data_dictionary(catalogs: dict[int, Catalog]) -> None:
    dictionary = orjson.loads((Path(ROOT) / "data_dictionary.json").read_bytes())
    documented = {f"{name}.{prop}" for name, entry in dictionary.items() for prop in entry["properties"]}
    used = {
        field.semantic_id
        for item in catalogs[max(catalogs)].capabilities
        for field in (*item.parameters, *item.outputs)
        if field.semantic_id is not None
    }
    assert used == documented


def test_one_semantic_id_has_one_dimension(catalogs: dict[int, Catalog]) -> None:
    found: dict[str, set[str | None]] = {}
    for item in catalogs[max(catalogs)].capabilities:
        for field in (*item.parameters, *item.outputs):
            found.setdefault(field.semantic_id or "", set()).add(field.dimension)
    # A conversion takes and gives whatever quantity it is for.
    found.pop("shared.measured_value")
    assert {name for name, dimensions in found.items() if len(dimensions) > 1} == set()


def test_identifier_kinds_narrow_and_do_not_decide(catalogs: dict[int, Catalog]) -> None:
    kinds = identifier_kinds(catalogs[max(catalogs)])
    print("; ".join(f"{kind} {gives}/{takes}" for kind, (gives, takes) in kinds.items()))
    assert all(gives >= 1 and takes >= 1 for gives, takes in kinds.values())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wo steht der Lkw mit dem Kennzeichen M-KL 4471?", "de"),
        ("¿Dónde está el camión de la ruta 7?", "es"),
        ("Where is the truck with plate KL 4471?", "en"),
        ("トラックKL-4471はどこですか", "ja"),
        ("KL-4471 트럭이 어디 있나요", "ko"),
        ("staging 볼륨 snapshot 찍고 resize 해주세요", "mixed"),
    ],
)
def test_language_is_told_by_script_and_function_words(text: str, language: str) -> None:
    assert language_of(text) == language
