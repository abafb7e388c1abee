"""``tune`` on toy tasks: what it writes is what was picked, and what it prints is what it writes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gates.tuning import report
from gates.tuning.design import Penalty
from schemarouter.catalog.views import VIEWS
from schemarouter.retrieval.typed import WeightsFile
from surface.loader import load_surface
from tests.cli.program import inside, refused
from tests.gates.tuning.worlds import STRONG, WEAK, design, many
from tests.toys import CATALOGS, LARGE, toy_protocol


@pytest.fixture
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preregistration.protocol.load_protocol", lambda surface: toy_protocol())
    monkeypatch.setattr(
        "surface.loader.load_surface", lambda name: many() if name == "development" else load_surface(name)
    )
    monkeypatch.setattr("surface.loader.load_catalogs", lambda sizes: CATALOGS)
    monkeypatch.setattr(report, "Extent", partial(report.Extent, grid=(WEAK, STRONG), outer=2, inner=2))


def share(rate: Any) -> str:
    """A rate as the tables show it, without its interval."""
    good, every = (
        rate[name] for name in (("hits", "decision_points") if "hits" in rate else ("numerator", "denominator"))
    )
    return f"{100 * good / every:.1f} % ({good}/{every})"


@pytest.mark.usefixtures("_toys")
def test_it_writes_the_weights_that_were_picked_with_the_record_of_how_and_prints_its_figures(tmp_path: Path) -> None:
    result = inside("tune", "--out", tmp_path, "--workers", 1, "--no-ablation", "--surface", "development")
    assert result.code == 0, result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tuning.json", "typed_weights.json"]
    weights = WeightsFile.model_validate_json((tmp_path / "typed_weights.json").read_bytes())
    record = json.loads((tmp_path / "tuning.json").read_bytes())
    assert set(record["views"]) == set(weights.views) == set(VIEWS)
    assert (record["tasks"], record["folds"], len(record["grid"])) == (8, {"outer": 2, "inner": 2}, 2)
    for view in VIEWS:
        found = record["views"][view]
        tried = {(item["shared"], item["deviation"]): item["hits"] for item in found["tried_on_all"]}
        picked = Penalty(**found["picked"])
        assert tried[picked.shared, picked.deviation] == max(tried.values())
        assert weights.views[view] == design(view).fitted(design(view).tasks, picked).as_weights()
        assert sorted(task for fold in found["folds"] for task in fold["tasks"]) == sorted(design(view).tasks)
        assert "without" not in found
        row = next(
            line for line in result.out.partition(f"{view}: next required")[2].splitlines() if f" {LARGE} " in line
        )
        for phase in ("opening", "later"):
            assert share(found["out_of_fold"][str(LARGE)][phase]["all"]) in row
        groups = result.out.partition(f"{view}: conditions of the experiment")[2]
        every = next(line for line in groups.splitlines() if line.strip("│ ").startswith("all"))
        for condition in ("state_aware", "progressive"):
            assert share(found["conditions_out_of_fold"]["all"]["task_pass"][condition]) in every
    assert result.out.rstrip().endswith("typed_weights.json: differs from this package.")


def test_nothing_is_tuned_on_the_frozen_surface(tmp_path: Path) -> None:
    refused(
        inside("tune", "--out", tmp_path, "--surface", "training", "--surface", "frozen"),
        2,
        "frozen",
        "--surface development",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_files_is_told_before_anything_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("the search began")

    monkeypatch.setattr("gates.tuning.report.tune", never)
    (tmp_path / "file").write_text("", encoding="utf-8")
    refused(inside("tune", "--out", tmp_path / "file"), 3, "tuning.json.probe", "cannot be written")
