"""``verify --quality``: the figures of each surface, of the tasks for tuning together, and of the catalog's tiers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surface.audit.figure import Figure
from surface.loader import Surface
from tests.cli.program import inside

GOOD = Figure("most frequent route", "3.0% (a.b, 3 of 100 steps)", True, "≤ 6%")
REPORTED = Figure("largest encoder cosine of two prompts", "0.500 (x, y)")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """One figure for each name of a surface and for the tiers, in place of those that take long."""
    found = dict.fromkeys(("development", "training", "together", "tiers"), GOOD)
    monkeypatch.setattr("surface.audit.quality.figures", lambda surface, *_: [found[surface.name], REPORTED])
    monkeypatch.setattr("surface.audit.quality.proofs", lambda *_: [])
    monkeypatch.setattr("surface.audit.tiers.figures", lambda *_: [found["tiers"], REPORTED])
    return found


@pytest.mark.usefixtures("made_up")
def test_a_table_each_for_both_surfaces_for_all_tasks_and_for_the_tiers() -> None:
    result = inside("verify", "--quality")
    assert (result.code, result.err) == (0, "")
    lines = [line.strip() for line in result.out.splitlines()]
    assert [line for line in lines if line in {"development", "training", "together", "tiers"}] == [
        "development", "training", "together", "tiers",
    ]  # fmt: skip
    assert sum(line.split() == [*GOOD.name.split(), *GOOD.value.split(), "≤", "6%", "yes"] for line in lines) == 4
    assert sum(line.endswith(REPORTED.value) for line in lines) == 4, "what has no bound neither holds nor fails"


def test_a_figure_outside_its_bound_is_exit_3(made_up: dict[str, Figure]) -> None:
    made_up["training"] = replace(GOOD, holds=False)
    result = inside("verify", "--quality")
    assert result.code == 3
    assert [line.split()[-1] for line in result.out.splitlines() if GOOD.name in line] == ["yes", "no", "yes", "yes"]
    report = inside("verify", "--quality", "--json").json
    assert report["sound"] is False
    assert report["surfaces"]["training"][0] == {
        "name": GOOD.name, "value": GOOD.value, "holds": False, "bound": GOOD.bound,
    }  # fmt: skip


@pytest.mark.usefixtures("made_up")
def test_a_surface_that_is_not_written_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    from surface.loader import load_surface

    monkeypatch.setattr(
        "surface.loader.load_surface", lambda name: Surface(name, (), {}) if name == "training" else load_surface(name)
    )
    assert list(inside("verify", "--quality", "--json").json["surfaces"]) == ["development"]
