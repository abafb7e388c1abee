"""``list``: what there is, as a table and as JSON."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from conditions.registry import CONDITIONS
from preregistration.protocol import load_protocol
from schemarouter.agents.registry import AGENTS
from schemarouter.cli import common
from schemarouter.retrieval.registry import RETRIEVERS
from surface.loader import load_catalogs, load_surface
from tests.cli.program import inside, refused

TASKS = load_surface("development")
NAMES: dict[str, tuple[str, list[Any]]] = {
    "conditions": ("name", [*CONDITIONS]),
    "retrievers": ("name", sorted(RETRIEVERS)),
    "agents": ("name", sorted(AGENTS)),
    "catalogs": ("size", [*load_protocol("development").catalogs]),
    "tasks": ("id", [task.prompt.id for task in TASKS.tasks]),
}


@pytest.mark.parametrize("what", NAMES)
def test_json_lists_every_name_in_order(what: str) -> None:
    key, names = NAMES[what]
    result = inside("list", what, "--json")
    assert (result.code, result.err) == (0, "")
    assert [row[key] for row in result.json] == names
    assert result.stdout.endswith(b"\n")


@pytest.mark.parametrize("what", NAMES)
def test_a_table_lists_every_name_below_the_columns_of_the_json(what: str) -> None:
    key, names = NAMES[what]
    result = inside("list", what)
    assert (result.code, result.err) == (0, "")
    header, *lines = result.out.splitlines()
    assert header.split()[0] == key
    firsts = [line.split()[0] for line in lines if line[:1] not in ("", " ")]
    assert firsts == [str(name) for name in names]


def test_catalogs_list_their_fingerprints_and_effects() -> None:
    catalogs = load_catalogs(load_protocol("development").catalogs)
    for row in inside("list", "catalogs", "--json").json:
        assert row["fingerprint"] == catalogs[row["size"]].fingerprint
        assert row["read"] + row["write"] + row["destructive"] == row["size"]


def test_retrievers_list_their_arguments_and_nesting() -> None:
    rows = {row["name"]: row for row in inside("list", "retrievers", "--json").json}
    assert "k1=1.5" in rows["bm25"]["arguments"] and rows["bm25"]["nested"] == ""
    assert rows["rrf"]["nested"] != ""
    assert all(row["what"] for row in rows.values())


def test_the_task_list_shows_prompts_and_no_key() -> None:
    rows = inside("list", "tasks", "--json").json
    assert {tuple(row) for row in rows} == {("cell", "id", "query")}
    assert [row["query"] for row in rows] == [task.prompt.query for task in TASKS.tasks]


@pytest.mark.parametrize("cell", ["recoverable_execution_failure/ko", "two_step_state_dependency/mixed"])
def test_a_cell_shows_its_tasks_in_full(cell: str) -> None:
    expected = [task for task in TASKS.tasks if TASKS.cell(task.prompt.id) == cell]
    rows = inside("list", "tasks", "--cell", cell, "--json").json
    assert rows == [task.model_dump(mode="json") for task in expected] != []
    text = inside("list", "tasks", "--cell", cell).out
    for task in expected:
        assert task.prompt.id in text and task.prompt.query in text
        assert all(step.route in text for step in task.key.steps)


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("recoverable_execution_failure/kr", "recoverable_execution_failure/"),
        ("two_step_state_dependancy/ko", "two_step_state_dependency/ko"),
    ],
)
def test_an_unknown_cell_is_refused_with_the_closest(given: str, near: str) -> None:
    refused(inside("list", "tasks", "--cell", given), 2, "unknown cell", repr(given), f"Did you mean '{near}")


@pytest.mark.parametrize("cell", ["recoverable_execution_failure/ko", "two_step_state_dependency/mixed"])
def test_a_cell_is_known_in_either_order_of_its_parts(cell: str) -> None:
    stratum, _, language = cell.partition("/")
    assert inside("list", "tasks", "--cell", f"{language}/{stratum}") == inside("list", "tasks", "--cell", cell)


@pytest.mark.parametrize("given", ["ja/three_step_state", "three_step_state/ja", "ja/three_step_dependency"])
def test_an_unknown_cell_of_a_language_is_suggested_in_that_language(given: str) -> None:
    message = refused(inside("list", "tasks", "--cell", given), 2, "Did you mean 'three_step_state_dependency/ja'?")
    assert "Languages: " in message and "Strata: " in message


def test_a_narrow_table_of_tasks_gives_the_query_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "_PIPE_WIDTH", 80)
    printed = inside("list", "tasks").out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    rows = inside("list", "tasks", "--json").json
    assert all(f"{row['id']} {row['cell']}" in lines for row in rows)
    assert max(map(cell_len, printed.splitlines())) <= 80
    assert max(cell_len(line.strip()) for line in printed.splitlines() if line.startswith(" ")) > 60


def test_a_surface_without_tasks_lists_none(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = type(TASKS)("frozen", (), {})
    monkeypatch.setattr("surface.loader.load_surface", lambda name: empty)
    assert inside("list", "tasks", "--surface", "frozen").out == "none\n"
    assert inside("list", "tasks", "--surface", "frozen", "--json").json == []
