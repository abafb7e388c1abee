"""Intervals and draws against R's survey package: fixtures/survey-reference.json, which the script beside it writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from gates.bootstrap import DrawsPerCell, Floats, Integers, rao_wu_factors, ratio_draws, resample_counts
from gates.intervals import LOGIT_T, logit_t, percentile, rate_percentile

FIXTURE = json.loads((Path(__file__).parents[1] / "fixtures" / "survey-reference.json").read_bytes())
DESIGNS: dict[str, dict[str, Any]] = FIXTURE["designs"]
DRAWS = int(FIXTURE["source"]["replicates"])
every_design = pytest.mark.parametrize("name", DESIGNS)
resampled = pytest.mark.parametrize("name", [name for name, design in DESIGNS.items() if "resampled" in design])


def integers(name: str, part: str) -> Integers:
    return np.asarray(DESIGNS[name][part], dtype=np.int64)


@every_design
@pytest.mark.parametrize("level", ["0.95", "0.9"])
def test_the_logit_interval_is_that_of_svyciprop(name: str, level: str) -> None:
    ours = logit_t(integers(name, "hits"), integers(name, "events"), integers(name, "cells"), float(level))
    assert ours.method == LOGIT_T
    assert [ours.low, ours.high] == pytest.approx(DESIGNS[name]["logit"][level], abs=1e-9)


@every_design
def test_its_linearised_error_and_degrees_of_freedom_are_those_of_svyratio(name: str) -> None:
    theirs = DESIGNS[name]
    ours = logit_t(integers(name, "hits"), integers(name, "events"), integers(name, "cells"))
    low, high = special.logit([ours.low, ours.high])
    rate = theirs["ratio"]
    assert special.expit((low + high) / 2) == pytest.approx(rate, abs=1e-9)
    reach = stats.t.ppf(0.975, theirs["degrees_of_freedom"]) * theirs["standard_error"] / (rate * (1 - rate))
    assert (high - low) / 2 == pytest.approx(reach, abs=1e-9)


def ratios(name: str, draws_per_cell: DrawsPerCell) -> Floats:
    sizes = np.bincount(integers(name, "cells")).tolist()
    counts = resample_counts(sizes, iterations=DRAWS, seed=7, draws_per_cell=draws_per_cell)
    factors = rao_wu_factors(sizes) if draws_per_cell == "n-1" else None
    return ratio_draws(integers(name, "hits"), integers(name, "events"), counts, factors=factors)


@resampled
@pytest.mark.parametrize("draws_per_cell", ["n", "n-1"])
def test_draws_spread_as_those_of_svrepdesign(name: str, draws_per_cell: DrawsPerCell) -> None:
    """Both are 20,000 random draws: a deviation has a standard error of 0.5 %, a .025 quantile one of .019 deviations."""
    theirs = DESIGNS[name]["resampled"][draws_per_cell]
    draws, deviation = ratios(name, draws_per_cell), theirs["standard_deviation"]
    assert draws.std(ddof=1) == pytest.approx(deviation, rel=5 * 0.005 * math.sqrt(2))
    ours = rate_percentile(draws, integers(name, "hits"), integers(name, "events"))
    assert [ours.low, ours.high] == pytest.approx(theirs["quantiles"], abs=5 * 0.019 * math.sqrt(2) * deviation)
    assert ours == percentile(draws)


@resampled
def test_those_tolerances_distinguish_the_two_ways_of_drawing(name: str) -> None:
    theirs = DESIGNS[name]["resampled"]
    assert theirs["n-1"]["standard_deviation"] / theirs["n"]["standard_deviation"] > 1 + 5 * 0.005 * math.sqrt(2)
