"""Conditional logit: the gradient is the slope, known weights come back, and a stronger penalty makes them smaller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from gates.tuning.logit import Choice, Floats, fit

PHASES, SIZE = 3, 9
KNOWN = np.asarray([[1.5, -1.0, 0.0, 0.5], [1.5, -1.0, 0.0, 0.5], [0.5, -1.0, 1.0, 0.5]])


def drawn(count: int, seed: int = 1) -> list[Choice]:
    """Choices made by the known weights, phases in turn."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        phase = number % PHASES
        figures = random.normal(size=(SIZE, KNOWN.shape[1]))
        odds = np.exp(figures @ KNOWN[phase])
        made.append(Choice(figures, (int(random.choice(SIZE, p=odds / odds.sum())),), phase))
    return made


def objective_of(choices: list[Choice], monkeypatch: pytest.MonkeyPatch, **penalties: float) -> Callable[..., Any]:
    """What `fit` minimises: loss and gradient."""
    taken: list[Callable[..., Any]] = []
    real = minimize

    def listen(objective: Callable[..., Any], start: Floats, **told: Any) -> Any:
        taken.append(objective)
        return real(objective, start, **told)

    monkeypatch.setattr("gates.tuning.logit.minimize", listen)
    fit(choices, PHASES, **penalties)
    return taken[0]


@pytest.mark.parametrize("penalties", [(0.0, 0.0), (0.3, 0.0), (0.0, 0.7), (0.01, 0.1)])
def test_the_gradient_is_the_slope_of_the_loss(monkeypatch: pytest.MonkeyPatch, penalties: tuple[float, float]) -> None:
    choices = [*drawn(7), Choice(drawn(1, seed=5)[0].figures, (0, 3, 4), 1)]
    objective = objective_of(choices, monkeypatch, shared=penalties[0], deviation=penalties[1])
    random = np.random.default_rng(2)
    for _ in range(5):
        at = random.normal(size=(1 + PHASES) * KNOWN.shape[1])
        off = check_grad(lambda x: objective(x)[0], lambda x: objective(x)[1], at)
        assert off < 1e-5


def test_the_loss_at_0_is_the_logarithm_of_the_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_of(drawn(7), monkeypatch, shared=0.1, deviation=0.1)
    assert objective(np.zeros((1 + PHASES) * KNOWN.shape[1]))[0] == pytest.approx(np.log(SIZE))


def test_known_weights_come_back() -> None:
    found = fit(drawn(6000), PHASES, shared=1e-6, deviation=1e-6)
    np.testing.assert_allclose(found, KNOWN, atol=0.15)


def test_a_stronger_penalty_makes_weights_smaller_and_phases_more_alike() -> None:
    choices = drawn(300)
    by_strength = [fit(choices, PHASES, shared=x, deviation=x) for x in (1e-4, 1e-2, 1.0)]
    sizes = [float(np.abs(weights).sum()) for weights in by_strength]
    assert sizes[0] > sizes[1] > sizes[2]
    apart = [float(np.ptp(fit(choices, PHASES, shared=1e-4, deviation=x), axis=0).sum()) for x in (1e-4, 1e-2, 10.0)]
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] < 0.05


def test_a_phase_without_choices_has_the_common_weights() -> None:
    choices = [choice for choice in drawn(300) if choice.phase != 2]
    found = fit(choices, PHASES, shared=1e-3, deviation=1e-2)
    common = fit(choices, PHASES, shared=1e-3, deviation=1e-2)[:2].mean(axis=0)
    np.testing.assert_allclose(found[2], common, atol=0.3)
    assert (np.abs(found[2]) > 0).all()


def test_a_figure_that_is_always_0_weighs_nothing_and_the_order_of_choices_does_not_matter() -> None:
    choices = [Choice(choice.figures * [1, 1, 0, 1], choice.right, choice.phase) for choice in drawn(90)]
    found = fit(choices, PHASES, shared=1e-3, deviation=1e-2)
    assert (found[:, 2] == 0).all()
    np.testing.assert_allclose(fit(choices[::-1], PHASES, shared=1e-3, deviation=1e-2), found, atol=1e-3)


def test_the_same_choices_give_the_same_bytes() -> None:
    one, again = (fit(drawn(90), PHASES, shared=1e-3, deviation=1e-2) for _ in range(2))
    assert one.tobytes() == again.tobytes()


def test_several_right_entries_share_a_choice() -> None:
    figures = np.asarray([[1.0], [1.0], [0.0]])
    both = fit([Choice(figures, (0, 1), 0)], 1, shared=0.1, deviation=0.1)
    one = fit([Choice(figures, (0,), 0), Choice(figures, (1,), 0)], 1, shared=0.1, deviation=0.1)
    np.testing.assert_allclose(both, one, atol=1e-5)
    assert both[0, 0] > 0
