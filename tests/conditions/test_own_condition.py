"""A condition beyond the protocol's: one class and one line, and it is run, measured, judged, shown and run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from conditions import registry as conditions
from conditions.base import Condition, Exposure, display_order
from conditions.full import Full
from preregistration.lock import scoring_refusal
from preregistration.names import SR_CONDITIONS, UNRANKED
from schemarouter.errors import InvalidRunError
from schemarouter.experiment import judge, load_complete_run, load_run, reproduce, run_experiment
from schemarouter.retrieval.base import Ranking
from tests.cli.program import inside

TASKS = ["dev-en-02", "dev-en-03"]


class FirstTwo(Condition):
    """Shows the first two."""

    name = "TOY-FIRST-TWO"

    def _first(self, query: str) -> Exposure:
        ranking = self.opening_ranking(query)
        return Exposure(display_order(ranking.ids[:2]), ranking, "open")


class Unranked(Full):
    """Shows the whole catalog under another name."""

    name = "TOY-FULL"


class OwnQuery(FirstTwo):
    """Opens with a ranking of its own."""

    name = "TOY-OWN-QUERY"

    def opening_ranking(self, query: str) -> Ranking:
        return self.retriever.rank(f"{query} invoice", k=self.rules.ranking_depth)


class Undeclared(FirstTwo):
    """Ranks, and says that it does not."""

    name = "TOY-UNDECLARED"
    ranks = False


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (FirstTwo, Unranked, OwnQuery, Undeclared):
        monkeypatch.setitem(conditions.CONDITIONS, kind.name, kind)


def run_of(folder: Path, *names: str) -> Path:
    return run_experiment(folder, retriever="bm25", catalogs=[100], tasks=TASKS, conditions=names or None).folder


def test_a_registered_condition_is_run_measured_judged_and_reproduced(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", FirstTwo.name, Unranked.name, "SR-5-STATIC")
    verdict = judge(folder)
    assert [*verdict.conditions] == ["SR-5-STATIC", FirstTwo.name, Unranked.name]
    assert "another condition" in verdict.stamp and "part of the grid" in verdict.stamp
    recall = {name: measures["next_required_recall"] for name, measures in verdict.conditions.items()}
    assert recall[FirstTwo.name].denominator > 0 and recall[Unranked.name].value is None
    assert FirstTwo.name in verdict.slices["catalog"]["100"] and Unranked.name not in verdict.slices["catalog"]["100"]
    rows = load_complete_run(folder).select(FirstTwo.name)
    assert {(row.counts.unique_candidates, row.counts.retrieval_calls) for row in rows} == {(2, 1)}
    assert reproduce(folder) == 6


def test_the_command_line_runs_shows_and_judges_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    part = ("--retriever", "bm25", "--catalog", "100", "--task", TASKS[0], "--condition", FirstTwo.name)
    assert inside("run", "--out", folder, *part, "--display", "none").code == 0
    assert FirstTwo.name in inside("show", folder, f"{TASKS[0]}/100/{FirstTwo.name}").out
    for command in ("gate", "aggregate", "reproduce"):
        result = inside(command, folder)
        assert result.code in ((0, 1) if command == "gate" else (0,)), result.err
    row = next(line for line in inside("gate", folder).out.splitlines() if "next-required recall" in line)
    assert "%" in row


def test_a_run_in_which_it_opens_with_another_ranking_is_refused(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", OwnQuery.name, "SR-5-STATIC")
    with pytest.raises(InvalidRunError, match="the conditions start from different rankings"):
        judge(folder)


def test_a_ranking_of_one_that_says_it_ranks_nothing_is_refused(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", Undeclared.name)
    with pytest.raises(InvalidRunError, match="TOY-UNDECLARED is registered as one that ranks nothing"):
        judge(folder)


def test_without_a_name_the_conditions_of_the_protocol_are_run(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run")
    assert load_run(folder).plan.conditions == (*SR_CONDITIONS, "FULL", "ORACLE")
    assert "another condition" not in load_run(folder).header.stamp


def test_a_run_of_one_that_is_not_registered_here_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_of(tmp_path / "run", FirstTwo.name)
    monkeypatch.delitem(conditions.CONDITIONS, FirstTwo.name)
    with pytest.raises(InvalidRunError, match=r"unknown condition 'TOY-FIRST-TWO'.*registered here too"):
        judge(folder)


def test_what_ranks_is_what_the_preregistration_says_and_all_else_needs_the_release(tmp_path: Path) -> None:
    own = {FirstTwo.name, Unranked.name, OwnQuery.name, Undeclared.name}
    assert {name for name in conditions.CONDITIONS if conditions.ranks(name)} - own == {*SR_CONDITIONS}
    assert {name for name in conditions.CONDITIONS if not conditions.ranks(name)} - own == UNRANKED
    assert all("is not locked" in scoring_refusal("frozen", [name], tmp_path) for name in own)
