"""Examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import schemarouter

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("schemarouter", "conditions", "gates", "preregistration", "surface")
EXEMPLARY = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", EXEMPLARY)
def test_the_examples_of_a_module_run(module: str) -> None:
    ended = doctest.testmod(import_module(module))
    assert ended.attempted > 0
    assert ended.failed == 0


def test_where_users_import_there_is_an_example() -> None:
    imported = ("agents.base", "catalog", "experiment", "policy", "records", "retrieval.base", "retrieval.registry")
    wanted = {f"schemarouter.{name}" for name in (*imported, "retrieval.spec", "state.execution_state")}
    assert {"schemarouter", *wanted} <= set(EXEMPLARY)


def test_every_core_name_is_there_and_an_unknown_one_is_refused_with_those() -> None:
    assert all(getattr(schemarouter, name) for name in schemarouter.__all__)
    with pytest.raises(AttributeError, match=r"no attribute 'Cataloge'; it has .*Catalog"):
        schemarouter.Cataloge  # type: ignore[attr-defined]  # noqa: B018
