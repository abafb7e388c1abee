"""Imports only point down; the arms cannot reach an answer key; retrieval knows nothing of the surface."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions.registry import CONDITIONS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("schemarouter", "preregistration", "surface", "conditions", "gates")
# Bottom to top. The longest prefix that fits a module says where it lives; rooms of one floor may import each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "schemarouter",
        "schemarouter.caches",
        "schemarouter.invisible",
        "schemarouter.gc_tuning",
        "schemarouter.environ",
        "schemarouter.errors",
        "schemarouter.files",
        "schemarouter.canonical",
        "schemarouter.disk_cache",
    ),
    ("schemarouter.catalog", "schemarouter.catalog.tools", "schemarouter.catalog.views"),
    (
        "schemarouter.state.leakage",
        "schemarouter.state",
        "schemarouter.state.contract",
        "schemarouter.state.turns",
        "schemarouter.policy",
        "schemarouter.tokens",
        "schemarouter.chat",
    ),
    ("schemarouter.retrieval",),
    ("schemarouter.agents",),
    ("schemarouter.records",),
    ("preregistration",),
    ("surface",),
    ("conditions",),
    ("gates",),
    ("schemarouter.cli", "schemarouter.__main__"),
)
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}
# What decides what is shown, and what all of it is made of; ORACLE alone may know the answer.
ARMS = {cls.__module__ for name, cls in CONDITIONS.items() if name != "ORACLE"} | {
    "conditions.base",
    "conditions.budget",
}


def modules() -> dict[str, Path]:
    """Every module of the packages by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def floor(module: str) -> int | None:
    """The floor of a module; the package `schemarouter` itself is the lowest, and nothing inherits from it."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in FLOOR_OF and (name != "schemarouter" or length == len(parts)):
            return FLOOR_OF[name]
    return None


def imports(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """Modules of the packages that a source imports anywhere, in functions and under TYPE_CHECKING too."""
    named = set(_imported(ast.parse(source), module.split("."), is_package))
    return {name for name in named if name.partition(".")[0] in PACKAGES}


def _imported(tree: ast.AST, here: list[str], is_package: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = len(here) - node.level + int(is_package)
            base = [*here[:up], *(node.module or "").split(".")] if node.level else (node.module or "").split(".")
            origin = ".".join(part for part in base if part)
            for item in node.names:
                whole = f"{origin}.{item.name}"
                yield whole if whole in MODULES else origin


def imports_of(module: str) -> set[str]:
    path = MODULES[module]
    return imports(path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py")


def reach(module: str) -> set[str]:
    """Everything a module imports, directly or not."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for name in imports_of(waiting.pop()) - seen:
            seen.add(name)
            if name in MODULES:
                waiting.append(name)
    return seen


def upward(module: str, imported: set[str]) -> list[str]:
    """The imports that point up."""
    own = floor(module)
    assert own is not None
    return [name for name in sorted(imported) if (there := floor(name)) is None or there > own]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_has_a_floor_and_imports_only_from_there_down(module: str) -> None:
    assert floor(module) is not None, f"{module} has no floor; put it into FLOORS"
    assert upward(module, imports_of(module)) == []


def below(*rooms: str) -> list[str]:
    return sorted(name for name in MODULES if name.startswith(rooms))


@pytest.mark.parametrize("module", sorted(ARMS))
def test_no_condition_but_oracle_can_reach_the_surface_even_through_others(module: str) -> None:
    assert not [name for name in reach(module) if name.partition(".")[0] == "surface"]


@pytest.mark.parametrize("module", below("schemarouter.retrieval", "schemarouter.agents"))
def test_retrieval_and_agents_import_nothing_of_the_experiment(module: str) -> None:
    assert not [name for name in reach(module) if name.partition(".")[0] != "schemarouter"]


def test_the_policy_cannot_reach_retrieval() -> None:
    assert not [name for name in reach("schemarouter.policy") if "retrieval" in name]


def test_the_check_sees_every_way_of_importing() -> None:
    source = """
import gates.gate
from surface import task
from . import episode
from .episode import Episode
def late():
    from schemarouter.state import Call
if TYPE_CHECKING:
    from conditions.storage import run_directory
"""
    found = imports(source, "conditions.static")
    assert found == {
        "gates.gate", "surface.task", "conditions.running.episode", "schemarouter.state", "conditions.storage.run_directory",
    }  # fmt: skip
    assert upward("conditions.static", found) == ["gates.gate"]
    assert upward("schemarouter.retrieval.bm25", {"surface.task", "schemarouter.nowhere", "schemarouter.catalog"}) == [
        "schemarouter.nowhere", "surface.task",
    ]  # fmt: skip
