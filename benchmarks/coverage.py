"""Coverage of each interval, how often it holds the true value: simulated surfaces of 30 cells x 6 tasks x 3 catalogs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from gates.bootstrap import Counts, Floats, Integers, rao_wu_factors, ratio_draws, resample_counts
from gates.intervals import LOGIT_T, PERCENTILE, RAO_WU, Interval, difference, logit_t, percentile

CELLS, TASKS, CATALOGS = 30, 6, 3
N_TASKS = CELLS * TASKS
BLOCK = 100

# Standard deviations on the logit scale: between cells (fixed), tasks, a task's catalogs, a condition on a task.
CELL_SD, TASK_SD, CATALOG_SD, CONDITION_SD = 0.6, 1.0, 0.5, 0.5
# Required steps of a task: 1 + Binomial(4, 1/2), one event a step and catalog; each step above 3 makes a task harder.
STEPS = np.arange(1, 6)
STEP_CHANCES = np.array([1, 4, 6, 4, 1]) / 16
STEP_SLOPE = -0.2

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
_CELL_OFFSETS: Floats = CELL_SD * special.ndtri((np.arange(CELLS) + 0.5) / CELLS)

# Numerators and denominators of one condition, (n_surfaces, n_tasks) int64 each.
Sample = tuple[Integers, Integers]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One true value to be covered: the recall of one condition, or the difference in task pass, first less second, of two."""

    name: str
    rates: tuple[float, ...]
    seed: int

    @property
    def truth(self) -> float:
        """The true value, which the intercepts are solved for by quadrature, not by simulation."""
        return self.rates[0] if len(self.rates) == 1 else self.rates[0] - self.rates[1]


SCENARIOS = (
    Scenario("pass .90 - .90", (0.90, 0.90), 1),
    Scenario("pass .88 - .90", (0.88, 0.90), 2),
    Scenario("recall .98", (0.98,), 3),
    Scenario("recall .90", (0.90,), 4),
)


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """Coverage of one method in one scenario; `below` and `above` count intervals wholly on that side of the truth.

    `replaced` counts logit-t intervals for which the exact binomial bound stood in, `no_width` intervals of width 0,
    which the analysis would replace. `mean_width` in the rate's own unit.
    """

    scenario: str
    method: str
    truth: float
    surfaces: int
    covered: int
    below: int
    above: int
    replaced: int
    no_width: int
    mean_width: float

    @property
    def coverage(self) -> float:
        """Share of surfaces whose interval holds the truth."""
        return self.covered / self.surfaces

    @property
    def standard_error(self) -> float:
        """Monte Carlo standard error of `coverage`."""
        return math.sqrt(self.coverage * (1 - self.coverage) / self.surfaces)


def simulate(
    *,
    surfaces: int = 2_000,
    iterations: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
    scenarios: Sequence[Scenario] = SCENARIOS,
) -> list[CoverageRow]:
    """Simulate every scenario and count how often each method that applies covers the truth; one row for each.

    `seed` is that of the one counts matrix a method uses for all surfaces, as in the real analysis; surfaces come
    from the scenarios' own seeds. Takes about 20 s on one core and 150 MB by default.
    """
    sizes = (TASKS,) * CELLS
    plain = resample_counts(sizes, iterations=iterations, seed=seed)
    fewer = resample_counts(sizes, iterations=iterations, seed=seed, draws_per_cell="n-1")
    resamplings = ((PERCENTILE, plain, None), (RAO_WU, fewer, rao_wu_factors(sizes)))
    rows: list[CoverageRow] = []
    for scenario in scenarios:
        by_method: dict[str, list[Interval]] = {}
        draw_surfaces = _surfaces(scenario)
        for start in range(0, surfaces, BLOCK):
            samples = draw_surfaces(min(BLOCK, surfaces - start))
            for method, counts, factors in resamplings:
                by_method.setdefault(method, []).extend(_resampled(samples, counts, factors, level, method))
            if len(samples) == 1:
                cell_index = np.repeat(np.arange(CELLS), TASKS)
                by_method.setdefault(LOGIT_T, []).extend(
                    logit_t(hits, events, cell_index, level) for hits, events in zip(*samples[0], strict=True)
                )
        rows.extend(_row(scenario, method, intervals) for method, intervals in by_method.items())
    return rows


def table(rows: Sequence[CoverageRow]) -> str:
    """Write the rows as a Markdown table."""
    lines = [
        "| scenario | interval | coverage | MC error | below | above | replaced | no width | mean width |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.scenario} | {row.method} | {row.coverage:.4f} | {row.standard_error:.4f} | {row.below} | {row.above} "
        f"| {row.replaced} | {row.no_width} | {row.mean_width:.4f} |"
        for row in rows
    ]
    return "\n".join(lines)


def mean_rate(intercept: float, sd: float, *, steps: bool) -> float:
    """Expected rate of a condition at `intercept` (logit), task and event effects of `sd` integrated out by quadrature.

    With `steps`, tasks count by their number of events: E[events x rate] / E[events], the limit of the ratio of sums.
    """
    weights = _WEIGHTS / _WEIGHTS.sum()
    if not steps:
        logits = intercept + _CELL_OFFSETS[:, np.newaxis] + sd * _NODES
        return float((special.expit(logits) @ weights).mean())
    shifts = STEP_SLOPE * (STEPS - 3)
    logits = intercept + _CELL_OFFSETS[:, np.newaxis, np.newaxis] + shifts[:, np.newaxis] + sd * _NODES
    by_steps = (special.expit(logits) @ weights).mean(axis=0)
    share = STEP_CHANCES * STEPS
    return float(by_steps @ share / share.sum())


def _surfaces(scenario: Scenario) -> Callable[[int], list[Sample]]:
    """Return a function that simulates n surfaces: a sample for each condition of the scenario."""
    generator = np.random.Generator(np.random.PCG64(scenario.seed))
    steps = len(scenario.rates) == 1
    sd = math.hypot(TASK_SD, CATALOG_SD, 0.0 if steps else CONDITION_SD)
    intercepts = [
        float(optimize.brentq(lambda at, rate=rate: mean_rate(at, sd, steps=steps) - rate, -10, 20, xtol=1e-13))
        for rate in scenario.rates
    ]
    cells = np.repeat(_CELL_OFFSETS, TASKS)[:, np.newaxis]

    def draw(n: int) -> list[Sample]:
        shared = cells + TASK_SD * generator.standard_normal((n, N_TASKS, 1))
        shared = shared + CATALOG_SD * generator.standard_normal((n, N_TASKS, CATALOGS))
        events = np.ones((n, N_TASKS, 1), dtype=np.int64)
        if steps:
            events = 1 + generator.binomial(4, 0.5, size=(n, N_TASKS, 1))
            shared = shared + STEP_SLOPE * (events - 3)
        samples: list[Sample] = []
        for intercept in intercepts:
            own = 0.0 if steps else CONDITION_SD * generator.standard_normal((n, N_TASKS, 1))
            hits = generator.binomial(events, special.expit(intercept + shared + own))
            samples.append((hits.sum(axis=2), CATALOGS * events[:, :, 0]))
        return samples

    return draw


def _resampled(
    samples: list[Sample], counts: Counts, factors: Integers | None, level: float, method: str
) -> list[Interval]:
    draws = [ratio_draws(*sample, counts, factors=factors) for sample in samples]
    if len(samples) == 1:
        return [percentile(one, level, method=method) for one in draws[0]]
    return [difference(a, b, level, method=method) for a, b in zip(*draws, strict=True)]


def _row(scenario: Scenario, method: str, intervals: list[Interval]) -> CoverageRow:
    truth = scenario.truth
    return CoverageRow(
        scenario=scenario.name,
        method=method,
        truth=truth,
        surfaces=len(intervals),
        covered=sum(1 for interval in intervals if interval.covers(truth)),
        below=sum(1 for interval in intervals if interval.high is not None and interval.high < truth),
        above=sum(1 for interval in intervals if interval.low is not None and interval.low > truth),
        replaced=sum(1 for interval in intervals if interval.method != method),
        no_width=sum(1 for interval in intervals if interval.width == 0.0),
        mean_width=math.fsum(interval.width or 0.0 for interval in intervals) / len(intervals),
    )
