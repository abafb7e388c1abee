"""What an agent declares of itself: who is handed the guide, and what the verdict claims."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from gates.gate import _agent_note
from schemarouter.agents import registry as agents
from schemarouter.agents.base import Action, AgentDeclaration
from schemarouter.experiment import judge, run_experiment
from schemarouter.retrieval.spec import Declaration
from tests.cli.program import inside
from tests.toys import Scripted

STRANGE = Declaration("strange", "stops at once")
GUIDED = AgentDeclaration("strange", "stops at once", knows_plan=True)


@pytest.fixture
def guides(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Registers an agent that declares nothing; the guides that it is built with, in order."""
    given: list[Any] = []

    def build(guide: Any, values: dict[str, Any]) -> Any:
        given.append(guide)
        return Scripted([Action("stop", reason="enough")])

    module = ModuleType("strange_agent")
    module.DECLARATION, module.build = STRANGE, build  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "strange_agent", module)
    monkeypatch.setitem(agents.AGENTS, "strange", "strange_agent")
    return given


def test_an_agent_that_declares_nothing_gets_no_guide_and_its_verdict_claims_nothing(
    guides: list[Any], tmp_path: Any
) -> None:
    run = run_experiment(tmp_path / "run", agent="strange", retriever="bm25", catalogs=[100], limit=5, exploratory=True)
    assert guides == [None] * 5
    note = judge(run.folder).provenance.agent_note
    assert note.startswith("The agent, strange, stops at once. It is not told the plan, ")
    assert "is not declared deterministic and is not declared simulated" in note
    assert "knows the plan" not in note and "not a language model" not in note


def test_an_agent_that_declares_that_it_knows_the_plan_gets_the_guide(
    guides: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["strange_agent"], "DECLARATION", GUIDED)
    guide: Any = object()
    agents.prepared("strange")(guide)
    assert guides == [guide]
    assert "It knows the plan, so this measures retrieval, not a language model." in _agent_note("strange")


def test_the_list_of_agents_shows_what_each_declares(guides: list[Any]) -> None:
    rows = {row["name"]: row for row in inside("list", "agents", "--json").json}
    declared = {name: [row[key] for key in ("knows_plan", "deterministic", "simulated")] for name, row in rows.items()}
    assert declared == {"fallible": [True] * 3, "reference": [True] * 3, "strange": [False] * 3}
    header, *lines = inside("list", "agents").out.splitlines()
    assert "knows plan" in header
    assert next(line for line in lines if line.startswith("strange")).split()[-3:] == ["no"] * 3
