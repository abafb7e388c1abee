"""The corrected intervals have their nominal coverage at the real design; that of the plain one is printed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.coverage import CATALOG_SD, CONDITION_SD, SCENARIOS, TASK_SD, Scenario, mean_rate, simulate, table
from gates.intervals import LOGIT_T, PERCENTILE, RAO_WU

PASS = [scenario.name for scenario in SCENARIOS if len(scenario.rates) == 2]
RECALL = [scenario.name for scenario in SCENARIOS if len(scenario.rates) == 1]


@pytest.mark.slow
def test_corrected_intervals_cover_between_93_and_97_percent() -> None:
    rows = simulate(surfaces=2_000, iterations=10_000, seed=20260929)
    print("\n" + table(rows))
    coverage = {(row.scenario, row.method): row.coverage for row in rows}
    assert set(coverage) == {(name, method) for name in PASS for method in (PERCENTILE, RAO_WU)} | {
        (name, method) for name in RECALL for method in (PERCENTILE, RAO_WU, LOGIT_T)
    }
    corrected = [(name, RAO_WU) for name in PASS] + [(name, LOGIT_T) for name in RECALL]
    outside = {case: coverage[case] for case in corrected if not 0.93 <= coverage[case] <= 0.97}
    assert not outside
    assert all(coverage[name, PERCENTILE] < coverage[name, RAO_WU] for name in PASS + RECALL)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_quadrature_truth_is_what_surfaces_average_to(scenario: Scenario) -> None:
    from benchmarks.coverage import _surfaces

    draw = _surfaces(scenario)
    blocks = [draw(500) for _ in range(8)]
    ratios = [
        np.concatenate([samples[n][0].sum(axis=1) / samples[n][1].sum(axis=1) for samples in blocks])
        for n in range(len(scenario.rates))
    ]
    values = ratios[0] - ratios[1] if len(ratios) == 2 else ratios[0]
    assert abs(values.mean() - scenario.truth) < 4 * values.std() / math.sqrt(values.size) + 1e-4


def test_mean_rate_rises_and_reduces_to_the_logistic_middle() -> None:
    sd = math.hypot(TASK_SD, CATALOG_SD, CONDITION_SD)
    assert mean_rate(0.0, sd, steps=False) == pytest.approx(0.5)
    assert mean_rate(1.0, sd, steps=False) > mean_rate(0.5, sd, steps=False)
    # Longer tasks are harder and count for more, so the middle lies lower.
    assert mean_rate(0.0, sd, steps=True) < 0.5


def test_a_small_simulation_is_reproducible_and_counts_every_surface() -> None:
    rows = simulate(surfaces=7, iterations=50, seed=1)
    assert rows == simulate(surfaces=7, iterations=50, seed=1)
    assert all(row.surfaces == 7 == row.covered + row.below + row.above for row in rows)
    assert len(table(rows).splitlines()) == len(rows) + 2
