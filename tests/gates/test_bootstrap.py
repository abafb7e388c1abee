"""The bootstrap and its intervals: exact sums, paired draws, order invariance, textbook values, degenerate cases."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gates.bootstrap import (
    Design,
    DesignError,
    Integers,
    counts_sha256,
    rao_wu_factors,
    ratio_draws,
    resample_counts,
    resampled_sums,
)
from gates.intervals import (
    Interval,
    difference,
    logit_t,
    percentile,
)
from tests.strategies import laws

COUNTS = [[2, 0, 1, 2, 0, 1], [0, 2, 1, 1, 2, 0], [0, 2, 1, 1, 2, 0], [1, 1, 1, 1, 0, 2]]
COUNTS_SHA256 = "4815260fc7a79ce8dd30f291860af8962a44906bf58fb5f9b3cc3f3c653e46a4"
HAND_SHA256 = "e3b215ae3a59d9b0acff46a99e506d8c86f582139720536f014fe218eb5780a3"

SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=6)


def ints(*values: int) -> Integers:
    return np.array(values, dtype=np.int64)


@st.composite
def designs(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """Task -> cell, and task -> (hits, events)."""
    ids = draw(st.lists(st.text("abcé-01", min_size=1, max_size=4), min_size=1, max_size=14, unique=True))
    cells = {task: draw(st.sampled_from(["easy/en", "easy/de", "hard/en"])) for task in ids}
    events = {task: draw(st.integers(0, 9)) for task in ids}
    return cells, {task: (draw(st.integers(0, events[task])), events[task]) for task in ids}


# --- design -----------------------------------------------------------------------------------------------------------


def test_design_sorts_cells_and_tasks() -> None:
    design = Design.of({"t3": "b", "t1": "b", "t9": "a"})
    assert design.cells == (("a", ("t9",)), ("b", ("t1", "t3")))
    assert design.tasks == ("t9", "t1", "t3")
    assert design.sizes == (1, 2)
    assert design.cell_index.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "cells",
    [
        (),
        (("a", ()),),
        (("b", ("t1",)), ("a", ("t2",))),
        (("a", ("t1",)), ("a", ("t2",))),
        (("a", ("t2", "t1")),),
        (("a", ("t1", "t1")),),
        (("a", ("t1",)), ("b", ("t1",))),
    ],
)
def test_design_refuses_what_is_not_sorted_and_unique(cells: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
    with pytest.raises(DesignError):
        Design(cells)


# --- counts -----------------------------------------------------------------------------------------------------------


@laws(100)
@given(SIZES, st.integers(0, 2**32), st.sampled_from(["n", "n-1"]))
def test_each_cell_is_drawn_as_often_as_promised(sizes: list[int], seed: int, draws: str) -> None:
    counts = resample_counts(sizes, iterations=9, seed=seed, draws_per_cell="n" if draws == "n" else "n-1")
    assert counts.shape == (9, sum(sizes))
    assert counts.dtype == np.uint8
    start = 0
    for size in sizes:
        drawn = size if draws == "n" or size == 1 else size - 1
        assert (counts[:, start : start + size].sum(axis=1) == drawn).all()
        start += size


def test_every_task_is_drawn_equally_often() -> None:
    counts = resample_counts([6, 4], iterations=20_000, seed=5)
    # Binomial(n, 1/n) a task: the mean of 20,000 has a standard error of at most .0065.
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.03)
    variance = counts.var(axis=0)
    np.testing.assert_allclose(variance, [5 / 6] * 6 + [3 / 4] * 4, atol=0.05)


def test_counts_and_their_hash_are_known() -> None:
    counts = resample_counts([2, 1, 3], iterations=4, seed=20260929)
    assert counts.tolist() == COUNTS
    assert counts_sha256(counts) == COUNTS_SHA256
    assert counts_sha256(np.array([[0, 2], [1, 1]], dtype=np.uint8)) == HAND_SHA256


def test_hash_sees_shape_dtype_and_values_but_not_memory_layout() -> None:
    counts = resample_counts([2, 2], iterations=3, seed=1)
    other = counts.copy()
    other[0, 0] += 1
    variants = [counts, counts.reshape(4, 3), counts.view(np.int8), other, counts[:2]]
    assert len({counts_sha256(variant) for variant in variants}) == len(variants)  # type: ignore[arg-type]
    assert counts_sha256(np.asfortranarray(counts)) == counts_sha256(counts)


def test_seed_and_draws_change_the_counts() -> None:
    first = resample_counts([6] * 3, iterations=20, seed=1)
    assert (first == resample_counts([6] * 3, iterations=20, seed=1)).all()
    assert (first != resample_counts([6] * 3, iterations=20, seed=2)).any()
    assert (first != resample_counts([6] * 3, iterations=20, seed=1, draws_per_cell="n-1")).any()


@pytest.mark.parametrize("sizes", [[], [0], [3, 256]])
def test_impossible_sizes_are_refused(sizes: list[int]) -> None:
    with pytest.raises(DesignError, match="1 to 255"):
        resample_counts(sizes, iterations=1, seed=0)
    with pytest.raises(DesignError, match="1 to 255"):
        rao_wu_factors(sizes)


def test_no_iterations_and_unknown_draws_are_refused() -> None:
    with pytest.raises(DesignError, match="iterations"):
        resample_counts([2], iterations=0, seed=0)
    with pytest.raises(DesignError, match="'n' and 'n-1'"):
        resample_counts([2], iterations=1, seed=0, draws_per_cell="n-2")  # type: ignore[arg-type]


# --- sums and ratios --------------------------------------------------------------------------------------------------


@laws(100)
@given(st.data(), SIZES, st.integers(0, 2**32))
def test_sums_equal_python_integers(data: st.DataObject, sizes: list[int], seed: int) -> None:
    n = sum(sizes)
    values = data.draw(st.lists(st.integers(-(2**44), 2**44), min_size=n, max_size=n))
    counts = resample_counts(sizes, iterations=5, seed=seed)
    expected = [sum(c * v for c, v in zip(row, values, strict=True)) for row in counts.tolist()]
    assert [int(total) for total in resampled_sums(values, counts)] == expected


def test_sums_that_would_round_are_refused() -> None:
    counts = np.array([[2, 0], [1, 1]], dtype=np.uint8)
    largest = 2**52 - 1
    assert resampled_sums([largest, largest], counts).tolist() == [2 * largest, 2 * largest]
    for values in ([2**52, 0], [-(2**52), 0], [-(2**63), 0]):
        with pytest.raises(DesignError, match=r"beyond 2\*\*53"):
            resampled_sums(values, counts)
    with pytest.raises(DesignError, match=r"beyond 2\*\*53"):
        resampled_sums([largest, 0], counts, factors=[2, 1])


@pytest.mark.parametrize("values", [[0.5, 1.0], [True, False], [1], [1, 2, 3], 4])
def test_only_one_integer_a_task_is_summed(values: object) -> None:
    with pytest.raises(DesignError):
        resampled_sums(values, np.ones((1, 2), dtype=np.uint8))  # type: ignore[arg-type]


@laws(60)
@given(designs(), st.randoms(use_true_random=False), st.sampled_from(["n", "n-1"]))
def test_row_order_changes_no_bit(
    surface: tuple[dict[str, str], dict[str, tuple[int, int]]], shuffler: random.Random, draws: str
) -> None:
    cells, sums = surface

    def analyse(order: list[str]) -> tuple[bytes, Interval]:
        design = Design.of({task: cells[task] for task in order})
        hits, events = np.array([sums[task] for task in design.tasks]).T
        counts = resample_counts(design.sizes, iterations=30, seed=3, draws_per_cell="n" if draws == "n" else "n-1")
        factors = None if draws == "n" else rao_wu_factors(design.sizes)
        drawn = ratio_draws(hits, events, counts, factors=factors)
        return drawn.tobytes(), logit_t(hits, events, design.cell_index)

    order = list(cells)
    first = analyse(order)
    shuffler.shuffle(order)
    assert analyse(order) == first


@laws(100)
@given(st.integers(1, 39), st.integers(1, 4))
def test_blocks_of_iterations_and_of_measures_change_no_bit(cut: int, rows: int) -> None:
    generator = np.random.Generator(np.random.PCG64(8))
    counts = resample_counts([5, 6, 2], iterations=40, seed=4)
    events = generator.integers(1, 30, size=(rows, 13))
    hits = generator.integers(0, events + 1)
    whole = ratio_draws(hits, events, counts)
    assert whole.shape == (rows, 40)
    parts = [ratio_draws(hits, events, part) for part in (counts[:cut], counts[cut:])]
    assert np.concatenate(parts, axis=1).tobytes() == whole.tobytes()
    single = [ratio_draws(hits[row], events[row], counts) for row in range(rows)]
    assert np.stack(single).tobytes() == whole.tobytes()


def test_undefined_draws_are_counted_not_filled() -> None:
    counts = np.array([[2, 0], [1, 1], [0, 2]], dtype=np.uint8)
    draws = ratio_draws([0, 3], [0, 4], counts)
    assert np.isnan(draws).tolist() == [True, False, False]
    interval = percentile(draws)
    assert (interval.low, interval.high, interval.undefined_draws, interval.iterations) == (0.75, 0.75, 1, 3)
    assert "1 of 3" in interval.note
    never = percentile(ratio_draws([0, 0], [0, 0], counts))
    assert (never.low, never.high, never.undefined_draws) == (None, None, 3)
    assert not never.covers(0.0)
    either = difference(draws, [0.5, math.nan, 0.5])
    assert (either.low, either.undefined_draws) == (0.25, 2)


# --- Rao-Wu -----------------------------------------------------------------------------------------------------------


def test_rao_wu_factors_are_the_smallest_integers() -> None:
    assert rao_wu_factors([6] * 30).tolist() == [1] * 180
    # 3/2, 5/4, 1 and 2 times 4.
    assert rao_wu_factors([3, 5, 1, 2]).tolist() == [6] * 3 + [5] * 5 + [4] + [8] * 2
    with pytest.raises(DesignError, match="fewer distinct sizes"):
        rao_wu_factors(list(range(2, 60)))


@laws(100)
@given(SIZES, st.integers(0, 2**32))
def test_rao_wu_keeps_every_cell_at_its_size(sizes: list[int], seed: int) -> None:
    counts = resample_counts(sizes, iterations=4, seed=seed, draws_per_cell="n-1")
    cell_index = np.repeat(np.arange(len(sizes)), sizes)
    in_cell = (cell_index == np.arange(len(sizes))[:, np.newaxis]).astype(np.int64)
    weights = resampled_sums(in_cell, counts, factors=rao_wu_factors(sizes))
    unit = weights[0, 0] / sizes[0]
    assert (weights == unit * np.array(sizes)[:, np.newaxis]).all()


def test_rao_wu_variance_is_unbiased_in_unequal_cells() -> None:
    sizes = [2, 3, 6]
    values = ints(20, 29, 4, 1, 1, 7, 2, 2, 8, 5, 0)
    wu = resample_counts(sizes, iterations=60_000, seed=11, draws_per_cell="n-1")
    draws = ratio_draws(values, np.ones_like(values), wu, factors=rao_wu_factors(sizes))
    cells = np.split(values, [2, 5])
    unbiased = sum(cell.size * cell.var(ddof=1) for cell in cells) / values.size**2
    shrunken = sum(cell.size * cell.var(ddof=0) for cell in cells) / values.size**2
    assert draws.mean() == pytest.approx(values.mean(), rel=0.01)
    assert draws.var() == pytest.approx(unbiased, rel=0.03)
    plain = ratio_draws(values, np.ones_like(values), resample_counts(sizes, iterations=60_000, seed=11))
    assert plain.var() == pytest.approx(shrunken, rel=0.03)
    unweighted = ratio_draws(values, np.ones_like(values), wu)
    assert abs(unweighted.mean() - values.mean()) > 0.1


# --- agreement with scipy ---------------------------------------------------------------------------------------------


def test_single_stratum_mean_and_ratio_agree_with_scipy() -> None:
    generator = np.random.Generator(np.random.PCG64(21))
    events = generator.integers(20, 400, size=25)
    hits = generator.binomial(events, generator.beta(6, 2, size=25))
    counts = resample_counts([25], iterations=20_000, seed=1)
    # The .025 quantile of 20,000 normal draws has a standard error of .019 deviations, and two are compared.
    tolerance = 6 * math.sqrt(2) * 0.019

    mean_draws = ratio_draws(hits, np.ones_like(hits), counts)
    mean = stats.bootstrap(
        (hits,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.Generator(np.random.PCG64(2))
    ).confidence_interval
    ours = percentile(mean_draws)
    assert ours.low == pytest.approx(mean.low, abs=tolerance * mean_draws.std())
    assert ours.high == pytest.approx(mean.high, abs=tolerance * mean_draws.std())

    rate_draws = ratio_draws(hits, events, counts)
    rate = stats.bootstrap(
        (hits, events),
        lambda y, x, axis: y.sum(axis=axis) / x.sum(axis=axis),
        paired=True,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.Generator(np.random.PCG64(3)),
    ).confidence_interval
    ours = percentile(rate_draws)
    assert ours.low == pytest.approx(rate.low, abs=tolerance * rate_draws.std())
    assert ours.high == pytest.approx(rate.high, abs=tolerance * rate_draws.std())
