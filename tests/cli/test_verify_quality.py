"""``verify --quality``: the figures of both surfaces, and of all their tasks together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surface.audit.quality import Figure
from surface.loader import Surface
from tests.cli.program import inside

GOOD = Figure("most frequent route", "3.0% (a.b, 3 of 100 steps)", True, "≤ 6%")
REPORTED = Figure("largest encoder cosine of two prompts", "0.500 (x, y)")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """One figure for each name of a surface, in place of those that take long."""
    found = dict.fromkeys(("development", "frozen", "together"), GOOD)
    monkeypatch.setattr("surface.audit.quality.figures", lambda surface, *_: [found[surface.name], REPORTED])
    monkeypatch.setattr("surface.audit.quality.proofs", lambda *_: [])
    return found


@pytest.mark.usefixtures("made_up")
def test_a_table_each_for_both_surfaces_and_for_all_tasks() -> None:
    result = inside("verify", "--quality")
    assert (result.code, result.err) == (0, "")
    lines = [line.strip() for line in result.out.splitlines()]
    assert [line for line in lines if line in {"development", "frozen", "together"}] == [
        "development", "frozen", "together",
    ]  # fmt: skip
    assert sum(line.split() == [*GOOD.name.split(), *GOOD.value.split(), "≤", "6%", "yes"] for line in lines) == 3
    assert sum(line.endswith(REPORTED.value) for line in lines) == 3, "what has no bound neither holds nor fails"


def test_a_figure_outside_its_bound_is_exit_3(made_up: dict[str, Figure]) -> None:
    made_up["frozen"] = replace(GOOD, holds=False)
    result = inside("verify", "--quality")
    assert result.code == 3
    assert [line.split()[-1] for line in result.out.splitlines() if GOOD.name in line] == ["yes", "no", "yes"]
    report = inside("verify", "--quality", "--json").json
    assert report["sound"] is False
    assert report["surfaces"]["frozen"][0] == {
        "name": GOOD.name, "value": GOOD.value, "holds": False, "bound": GOOD.bound,
    }  # fmt: skip


@pytest.mark.usefixtures("made_up")
def test_a_surface_that_is_not_written_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    from surface.loader import load_surface

    monkeypatch.setattr(
        "surface.loader.load_surface", lambda name: Surface(name, (), {}) if name == "frozen" else load_surface(name)
    )
    assert list(inside("verify", "--quality", "--json").json["surfaces"]) == ["development"]
