"""Confidence intervals for ratios of per-task sums and for their paired differences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, with_config
from scipy import special

from gates.bootstrap import DesignError, Floats, Integers

PERCENTILE = "percentile"
RAO_WU = "rao-wu percentile"
LOGIT_T = "logit-t"
EXACT = "exact binomial"
# Far above the error of a difference of two rates, far below what one task can change.
_ROUNDING = 1e-12


@with_config(ConfigDict(strict=False, extra="forbid"))
@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval and the method that gave it.

    `low` and `high` are None where the interval is undefined. `method` names what was really computed, so a replaced
    interval says so. `undefined_draws` of `iterations` bootstrap draws had no value; both are 0 for methods without draws.
    """

    low: float | None
    high: float | None
    method: str
    undefined_draws: int = 0
    iterations: int = 0
    note: str = ""

    @property
    def width(self) -> float | None:
        """`high` - `low`, or None where undefined."""
        return None if self.low is None or self.high is None else self.high - self.low

    def covers(self, value: float) -> bool:
        """Whether `value` lies inside, ends included; an undefined interval covers nothing."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high


def percentile(draws: npt.ArrayLike, level: float = 0.95, *, method: str = PERCENTILE) -> Interval:
    """Take the central `level` of the defined draws (Efron 1979), quantiles interpolated linearly.

    `draws`: (iterations,) floats, not-a-number where undefined. `method` is the name shown: draws of a Rao-Wu counts
    matrix make a Rao-Wu interval by the same quantiles. Raises `DesignError` for a level outside (0, 1), no draws, or
    draws that are infinite.
    """
    tail = _tail(level)
    values = np.asarray(draws, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise DesignError(f"draws of shape {values.shape}; one axis with at least one draw is needed.")
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        raise DesignError(
            f"{infinite.size} of {values.size} draws are infinite, the first at {int(infinite[0])}; a draw is a finite "
            "number, or not-a-number where it is undefined."
        )
    undefined = np.isnan(values)
    n_undefined = int(np.count_nonzero(undefined))
    if n_undefined == values.size:
        return Interval(None, None, method, n_undefined, values.size, "undefined: no draw has a value")
    low, high = np.quantile(values[~undefined] if n_undefined else values, [tail, 1 - tail], method="linear")
    note = f"{n_undefined} of {values.size} draws undefined and left out" if n_undefined else ""
    return Interval(float(low), float(high), method, n_undefined, values.size, note)


def difference(
    draws_a: npt.ArrayLike, draws_b: npt.ArrayLike, level: float = 0.95, *, method: str = PERCENTILE
) -> Interval:
    """Take the percentile interval of A - B over paired draws: both (iterations,), of the same counts matrix.

    A draw is undefined where either side is. Raises `DesignError` for draws of different lengths.
    """
    a = np.asarray(draws_a, dtype=np.float64)
    b = np.asarray(draws_b, dtype=np.float64)
    if a.shape != b.shape:
        raise DesignError(f"draws of shapes {a.shape} and {b.shape} are not paired; draw both from one counts matrix.")
    return percentile(a - b, level, method=method)


def rate_percentile(
    draws: Floats, numerator: Integers, denominator: Integers, level: float = 0.95, *, method: str = PERCENTILE
) -> Interval:
    """Take the percentile interval of a rate, or the exact binomial bound where that has no width.

    `draws`: (iterations,) floats, those of `gates.bootstrap.ratio_draws` for this very rate; `numerator`, `denominator`:
    (n_tasks,) int64 with 0 <= numerator <= denominator. Draws that are all equal (all pass, or none) show nothing of the
    sampling error, so the Clopper-Pearson interval stands in, one trial for each task with a denominator; `method` and
    `note` say so. Raises `DesignError` where numerator and denominator are no rate.
    """
    _require_rate(numerator, denominator)
    interval = percentile(draws, level, method=method)
    if interval.width != 0.0:
        return interval
    exact = _exact_at_tasks(numerator, denominator, level, f"the {method} interval has no width")
    return replace(exact, undefined_draws=interval.undefined_draws, iterations=interval.iterations)


def rate_difference_percentile(
    draws_a: Floats,
    draws_b: Floats,
    a: tuple[Integers, Integers],
    b: tuple[Integers, Integers],
    level: float = 0.95,
    *,
    method: str = PERCENTILE,
) -> Interval:
    """Take the paired percentile interval of rate A - rate B, or an exact binomial bound where that has no width.

    `draws_a`, `draws_b`: (iterations,) floats each, those of `gates.bootstrap.ratio_draws` for `a` and `b` and one counts
    matrix; `a`, `b`: (numerator, denominator), (n_tasks,) int64 each. Without width every task shows the same difference d.
    The share of tasks that would show another is at most u, the Clopper-Pearson bound for 0 of the tasks that have
    both denominators, and a difference lies within [-1, 1], so [d - u(1 + d), d + u(1 - d)] stands in: each side by
    its own bound, together by Bonferroni. Exact for tasks of equal weight, as in task pass. Raises `DesignError` where
    `a` or `b` is no rate.
    """
    _require_rate(*a)
    _require_rate(*b)
    interval = difference(draws_a, draws_b, level, method=method)
    # Differences of equal rates differ in their last bits.
    if interval.low is None or interval.width is None or interval.width > _ROUNDING:
        return interval
    trials = int(np.count_nonzero((a[1] > 0) & (b[1] > 0)))
    other = exact_binomial(0, trials, level).high
    if other is None:
        return replace(interval, note="no width, and no task has both denominators for an exact bound")
    shared = interval.low
    return replace(
        interval,
        low=shared - other * (1 + shared),
        high=shared + other * (1 - shared),
        method=f"{EXACT}, {trials} tasks",
        note=f"the {method} interval has no width: bound on the share of tasks that differ otherwise",
    )


def exact_binomial(successes: float, trials: float, level: float = 0.95) -> Interval:
    """Take the central exact interval of a binomial rate (Clopper & Pearson 1934) by beta quantiles.

    Fractions are allowed, as for effective sample sizes (Korn & Graubard 1998). No trials: undefined. Raises
    `DesignError` unless 0 <= successes <= trials, both finite.
    """
    tail = _tail(level)
    if not 0 <= successes <= trials < math.inf:
        raise DesignError(f"{successes} successes of {trials} trials; finite 0 <= successes <= trials is needed.")
    if trials == 0:
        return Interval(None, None, EXACT, note="undefined: no trials")
    failures = trials - successes
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(special.betaincinv(successes + 1, failures, 1 - tail))
    return Interval(low, high, EXACT)


def logit_t(numerator: Integers, denominator: Integers, cell_index: Integers, level: float = 0.95) -> Interval:
    """Take the linearised logit interval of a rate with Student's t (Korn & Graubard 1998; Woodruff 1971).

    `numerator`, `denominator`, `cell_index`: (n_tasks,) int64, 0 <= numerator <= denominator. With p = Y / X, the
    linearised value of a task is z = (y - p x) / X; the variance of p is the sum over cells of n / (n - 1) times the
    squared deviations of z from its cell mean; that of logit p is var / (p (1 - p))**2; degrees of freedom are tasks
    less cells. A cell of one task adds no variance, and the note says how many there are. For a rate of 0 or 1, no
    variance or no degrees of freedom the exact binomial bound stands in, one trial for each task with a denominator.
    Raises `DesignError` where numerator and denominator are no rate, or tasks and cells differ in number.
    """
    tail = _tail(level)
    _require_rate(numerator, denominator)
    if cell_index.shape != numerator.shape:
        raise DesignError(f"cell_index {cell_index.shape} for tasks {numerator.shape}; each task has one cell.")
    events, hits = int(denominator.sum()), int(numerator.sum())
    if events == 0:
        return Interval(None, None, LOGIT_T, note="undefined: the denominator is 0")
    if hits in (0, events):
        return _exact_at_tasks(numerator, denominator, level, f"the rate is {hits // events}")
    freedom = numerator.size - np.unique(cell_index).size
    if freedom <= 0:
        return _exact_at_tasks(numerator, denominator, level, "every cell has one task, so no degrees of freedom")
    # X**2 z as Python integers: the variance is then rounded once a cell, and the same whatever the CPU.
    cells: dict[int, list[int]] = {}
    for y, x, cell in zip(numerator.tolist(), denominator.tolist(), cell_index.tolist(), strict=True):
        cells.setdefault(cell, []).append(y * events - x * hits)
    variance = math.fsum(map(_scaled_variance, cells.values())) / events**4
    if variance == 0:
        return _exact_at_tasks(numerator, denominator, level, "tasks do not vary within their cells")
    rate = hits / events
    centre = math.log(hits / (events - hits))
    reach = float(special.stdtrit(freedom, 1 - tail)) * math.sqrt(variance) / (rate * (1 - rate))
    alone = sum(len(cell) == 1 for cell in cells.values())
    note = f"{alone} cells of one task add no variance" if alone else ""
    return Interval(_expit(centre - reach), _expit(centre + reach), LOGIT_T, note=note)


def _scaled_variance(values: list[int]) -> float:
    """N / (n - 1) times the squared deviations from the mean, of integers; 0 for a single one."""
    n = len(values)
    return (n * sum(value * value for value in values) - sum(values) ** 2) / (n - 1) if n > 1 else 0.0


def _exact_at_tasks(numerator: Integers, denominator: Integers, level: float, why: str) -> Interval:
    """Clopper-Pearson at the observed rate, one trial for each task that has a denominator."""
    trials = int(np.count_nonzero(denominator))
    successes = trials * int(numerator.sum()) / int(denominator.sum())
    excluded = numerator.size - trials
    note = f"{why}; {excluded} tasks without a denominator are no trials" if excluded else why
    return replace(exact_binomial(successes, trials, level), method=f"{EXACT}, {trials} tasks", note=note)


def _require_rate(numerator: Integers, denominator: Integers) -> None:
    if numerator.shape != denominator.shape or numerator.ndim != 1:
        raise DesignError(f"numerator {numerator.shape} and denominator {denominator.shape}; both are (n_tasks,).")
    wrong = np.flatnonzero((numerator < 0) | (numerator > denominator))
    if wrong.size:
        at = int(wrong[0])
        raise DesignError(
            f"not a rate: task {at} has {int(numerator[at])} of {int(denominator[at])}; 0 <= numerator <= denominator."
        )


def _expit(value: float) -> float:
    # Two forms, so that exp never overflows.
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    odds = math.exp(value)
    return odds / (1 + odds)


def _tail(level: float) -> float:
    """The probability left on each side of a central interval."""
    if not 0 < level < 1:
        raise DesignError(f"level {level}; a share between 0 and 1 is needed, such as 0.95.")
    return (1 - level) / 2
