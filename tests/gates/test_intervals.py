"""Intervals: percentile, exact and linearised; degenerate cases show an exact bound, and impossible input is refused."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from conditions.running.plan import Plan
from gates.bootstrap import (
    DesignError,
    ratio_draws,
    resample_counts,
)
from gates.episode_table import EpisodeRow
from gates.gate import judge
from gates.intervals import (
    difference,
    exact_binomial,
    logit_t,
    percentile,
    rate_difference_percentile,
    rate_percentile,
)
from gates.measures import EpisodeCounts
from preregistration.names import PROGRESSIVE, STATE_AWARE
from tests.gates.test_bootstrap import ints
from tests.strategies import laws
from tests.toys import complete_run, toy_protocol

NONE = EpisodeCounts(**dict.fromkeys((field.name for field in fields(EpisodeCounts)), 0))


def test_percentile_interpolates_linearly() -> None:
    interval = percentile(np.arange(11.0), 0.95)
    assert interval.low == pytest.approx(0.25)
    assert interval.high == pytest.approx(9.75)
    assert percentile(np.arange(101.0), 0.5).low == 25.0
    assert (interval.method, interval.undefined_draws, interval.iterations, interval.note) == ("percentile", 0, 11, "")


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.1, math.nan])
def test_impossible_levels_are_refused(level: float) -> None:
    with pytest.raises(DesignError, match="level"):
        percentile([1.0], level)


def test_draws_must_be_one_axis_and_paired() -> None:
    for draws in ([], [[1.0, 2.0]], 3.0):
        with pytest.raises(DesignError, match="shape"):
            percentile(draws)
    with pytest.raises(DesignError, match="not paired"):
        difference([1.0, 2.0], [1.0])


def test_paired_draws_cancel_what_both_share() -> None:
    counts = resample_counts([6] * 5, iterations=2_000, seed=6)
    events = np.full(30, 3, dtype=np.int64)
    b = np.random.Generator(np.random.PCG64(7)).integers(0, 3, size=30)
    draws_b = ratio_draws(b, events, counts)
    shifted = difference(ratio_draws(b + 1, events, counts), draws_b)
    assert shifted.low == pytest.approx(1 / 3, abs=1e-15)
    assert shifted.high == pytest.approx(1 / 3, abs=1e-15)
    unpaired = difference(ratio_draws(b + 1, events, resample_counts([6] * 5, iterations=2_000, seed=7)), draws_b)
    assert unpaired.width is not None
    assert unpaired.width > 0.1


@laws(100)
@given(st.integers(0, 40), st.integers(1, 40))
def test_clopper_pearson_ends_solve_their_equations(successes: int, trials: int) -> None:
    successes = min(successes, trials)
    interval = exact_binomial(successes, trials, 0.9)
    assert interval.low is not None
    assert interval.high is not None
    if successes == 0:
        assert interval.low == 0.0
    else:
        assert stats.binom.sf(successes - 1, trials, interval.low) == pytest.approx(0.05)
    if successes == trials:
        assert interval.high == 1.0
    else:
        assert stats.binom.cdf(successes, trials, interval.high) == pytest.approx(0.05)


def test_exact_binomial_edges() -> None:
    assert exact_binomial(0, 180).high == pytest.approx(1 - 0.025 ** (1 / 180))
    assert exact_binomial(180, 180).low == pytest.approx(0.025 ** (1 / 180))
    assert exact_binomial(0, 0).low is None
    for successes in (-1, 4, math.nan):
        with pytest.raises(DesignError, match="successes"):
            exact_binomial(successes, 3)


@pytest.mark.parametrize("hits", [0, 3])
def test_an_interval_of_no_width_shows_the_exact_bound(hits: int) -> None:
    counts = resample_counts([6] * 30, iterations=50, seed=1)
    events = np.full(180, 3, dtype=np.int64)
    exact = exact_binomial(60 * hits, 180)
    for interval in (
        rate_percentile(ratio_draws(np.full(180, hits), events, counts), np.full(180, hits), events),
        logit_t(np.full(180, hits), events, np.repeat(np.arange(30), 6)),
    ):
        assert (interval.low, interval.high) == (exact.low, exact.high)
        assert interval.method == "exact binomial, 180 tasks"
        assert interval.note
    draws = ratio_draws(np.arange(180) % 4, events, counts)
    varied = rate_percentile(draws, np.arange(180) % 4, events)
    assert varied.method == "percentile"
    assert varied == percentile(draws)


def test_tasks_without_events_are_no_trials_of_the_exact_bound() -> None:
    counts = resample_counts([4], iterations=40, seed=1)
    some, none = ints(2, 3, 0, 0), ints(0, 0, 0, 0)
    interval = rate_percentile(ratio_draws(some, some, counts), some, some)
    assert interval.low == exact_binomial(2, 2).low
    assert interval.method == "exact binomial, 2 tasks"
    assert interval.undefined_draws == int((counts[:, :2].sum(axis=1) == 0).sum()) > 0
    nothing = rate_percentile(ratio_draws(none, none, counts), none, none)
    assert (nothing.low, nothing.undefined_draws) == (None, 40)


@pytest.mark.parametrize(("hits_a", "hits_b"), [(3, 3), (3, 0), (0, 3), (2, 1)])
def test_a_difference_of_no_width_shows_an_exact_bound(hits_a: int, hits_b: int) -> None:
    counts = resample_counts([6] * 30, iterations=50, seed=1)
    events = np.full(180, 3, dtype=np.int64)
    a, b = (np.full(180, hits_a), events), (np.full(180, hits_b), events)
    interval = rate_difference_percentile(ratio_draws(*a, counts), ratio_draws(*b, counts), a, b)
    share = 1 - 0.025 ** (1 / 180)
    gap = (hits_a - hits_b) / 3
    assert interval.low == pytest.approx(gap - share * (1 + gap))
    assert interval.high == pytest.approx(gap + share * (1 - gap))
    assert interval.method == "exact binomial, 180 tasks"
    assert interval.covers(gap)


def test_a_difference_with_width_is_the_percentile_interval() -> None:
    counts = resample_counts([6, 5], iterations=200, seed=1)
    events = np.full(11, 3, dtype=np.int64)
    a, b = np.arange(11) % 4, np.arange(11) % 3
    draws = [ratio_draws(side, events, counts) for side in (a, b)]
    assert rate_difference_percentile(draws[0], draws[1], (a, events), (b, events)) == difference(draws[0], draws[1])


def test_logit_t_of_one_cell_is_the_textbook_interval() -> None:
    hits, events = ints(7, 9, 10, 4, 8), ints(10, 10, 10, 10, 10)
    rates = hits / events
    p = rates.mean()
    reach = stats.t.ppf(0.975, 4) * rates.std(ddof=1) / math.sqrt(5) / (p * (1 - p))
    centre = math.log(p / (1 - p))
    interval = logit_t(hits, events, ints(0, 0, 0, 0, 0))
    assert interval.method == "logit-t"
    assert interval.low == pytest.approx(1 / (1 + math.exp(reach - centre)))
    assert interval.high == pytest.approx(1 / (1 + math.exp(-reach - centre)))


def test_logit_t_degenerate_cases_say_so() -> None:
    undefined = logit_t(ints(0, 0), ints(0, 0), ints(0, 0))
    assert (undefined.low, undefined.high) == (None, None)
    assert "denominator is 0" in undefined.note
    alone = logit_t(ints(1, 0, 1), ints(1, 1, 1), ints(0, 1, 2))
    assert (alone.low, alone.method) == (exact_binomial(2, 3).low, "exact binomial, 3 tasks")
    assert "degrees of freedom" in alone.note
    still = logit_t(ints(1, 1, 1, 1), ints(2, 2, 2, 2), ints(0, 0, 1, 1))
    assert (still.high, still.method) == (exact_binomial(2, 4).high, "exact binomial, 4 tasks")
    assert "do not vary" in still.note
    mixed = logit_t(ints(1, 2, 2), ints(2, 2, 2), ints(0, 0, 1))
    assert mixed.method == "logit-t"
    assert "1 cells of one task" in mixed.note
    wide = logit_t(ints(400, 0), ints(400, 1), ints(0, 0))
    assert wide.low == pytest.approx(0.0, abs=1e-3)
    assert wide.high == pytest.approx(1.0)


@pytest.mark.parametrize(("hits", "events"), [((2, 0), (1, 1)), ((-1, 0), (1, 1)), ((1,), (1, 1))])
def test_what_is_no_rate_is_refused(hits: tuple[int, ...], events: tuple[int, ...]) -> None:
    wrong, draws = (ints(*hits), ints(*events)), np.ones(2)
    with pytest.raises(DesignError):
        logit_t(*wrong, ints(0, 0))
    with pytest.raises(DesignError):
        rate_percentile(draws, *wrong)
    with pytest.raises(DesignError):
        rate_difference_percentile(draws, draws, (ints(0, 0), ints(1, 1)), wrong)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinite_draws_are_refused_with_their_index(value: float) -> None:
    with pytest.raises(DesignError, match="1 of 4 draws are infinite, the first at 2"):
        percentile([0.1, math.nan, value, 0.2])
    with pytest.raises(DesignError, match="infinite"):
        difference([0.1, 0.2], [value, 0.2])


@pytest.mark.parametrize(("successes", "trials"), [(1.0, math.inf), (math.inf, math.inf), (math.nan, 3), (1, math.nan)])
def test_an_exact_interval_needs_finite_trials(successes: float, trials: float) -> None:
    with pytest.raises(DesignError, match=f"{successes} successes of {trials} trials"):
        exact_binomial(successes, trials)


@pytest.mark.parametrize("cells", [[0], [0, 0, 1, 1], [[0, 0, 1]]])
def test_a_linearised_interval_needs_a_cell_for_each_task(cells: list[int]) -> None:
    index = np.array(cells, dtype=np.int64)
    with pytest.raises(DesignError, match=rf"cell_index \({index.shape[0]},.* for tasks \(3,\)"):
        logit_t(np.array([1, 0, 1]), np.array([1, 1, 1]), index)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"iterations": 2.5}, "2.5 iterations"),
        ({"iterations": True}, "True iterations"),
        ({"iterations": -1}, "-1 iterations"),
        ({"seed": -1}, "seed -1; a whole number from 0"),
        ({"seed": 1.5}, "seed 1.5"),
        ({"sizes": [2, 2.5]}, r"cell sizes \[2.5\]"),
    ],
)
def test_a_resampling_by_no_whole_numbers_is_refused_with_what_came(given: dict[str, object], message: str) -> None:
    plain: dict[str, object] = {"sizes": [2, 3], "iterations": 4, "seed": 0, **given}
    with pytest.raises(DesignError, match=message):
        resample_counts(plain.pop("sizes"), **plain)  # type: ignore[arg-type]


def test_a_cell_of_one_task_leaves_every_interval_undefined_and_supports_nothing() -> None:
    cells = {"t0": "deep/en", "t1": "deep/en", "t2": "flat/ko"}
    rows = [
        EpisodeRow(task, 12, name, replace(NONE, episodes=1, passed=1, schema_tokens=tokens))
        for task in cells
        for name, tokens in ((STATE_AWARE, 100), (PROGRESSIVE, 5_378))
    ]
    run = complete_run(Plan(tuple(cells), (12,), (STATE_AWARE, PROGRESSIVE)), rows, cells)
    protocol = toy_protocol(20)
    rules = protocol.statistics.model_copy(update={"stratify_by": "stratum_language"})
    tokens = judge(run, protocol.model_copy(update={"statistics": rules})).criteria[3]
    assert tokens.passed and tokens.estimate == -5_278
    assert not any(tokens.supported_by.values())
    assert {interval.low for interval in tokens.intervals.values()} == {None}
    assert all("1 cells hold one task" in interval.note for interval in tokens.intervals.values())


def test_a_difference_that_is_the_same_in_every_task_has_the_exact_bound_whatever_its_last_bits() -> None:
    events = np.full(30, 10)
    one, other = np.full(30, 3), np.full(30, 1)
    draws = np.full(500, 0.3), np.where(np.arange(500) % 2, 0.1, np.nextafter(0.1, 1))
    interval = rate_difference_percentile(*draws, (one, events), (other, events))
    assert interval.method.startswith("exact binomial") and interval.width is not None and interval.width > 0.1
