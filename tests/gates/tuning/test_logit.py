"""Conditional logit: its slopes, that it is fitted to the end, that known weights come back, and what penalties do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, check_grad

from gates.tuning.logit import Choice, Objective, fit
from schemarouter.errors import SchemaRouterError

PHASES, SIZE = 3, 9
KNOWN = np.asarray([[1.5, -1.0, 0.0, 0.5], [1.5, -1.0, 0.0, 0.5], [0.5, -1.0, 1.0, 0.5]])


def simulated(count: int, seed: int = 1) -> list[Choice]:
    """Choices simulated from the known weights, phases in turn."""
    random = np.random.default_rng(seed)
    choices = []
    for number in range(count):
        phase = number % PHASES
        features = random.normal(size=(SIZE, KNOWN.shape[1]))
        odds = np.exp(features @ KNOWN[phase])
        choices.append(Choice(features, (int(random.choice(SIZE, p=odds / odds.sum())),), phase))
    return choices


def objective(choices: list[Choice], shared: float, deviation: float) -> Objective:
    return Objective(choices, PHASES, shared, deviation)


@pytest.mark.parametrize("penalties", [(0.0, 0.0), (0.3, 0.0), (0.0, 0.7), (0.01, 0.1)])
def test_gradient_and_hessian_are_slopes(penalties: tuple[float, float]) -> None:
    loss = objective([*simulated(7), Choice(simulated(1, seed=5)[0].features, (0, 3, 4), 1)], *penalties)
    random = np.random.default_rng(2)
    for _ in range(5):
        at = random.normal(size=(1 + PHASES) * KNOWN.shape[1])
        assert check_grad(loss.value, lambda x: loss.slopes(x)[0], at) < 1e-5
        np.testing.assert_allclose(approx_fprime(at, lambda x: loss.slopes(x)[0]), loss.slopes(at)[1], atol=1e-6)


def test_the_loss_at_0_is_the_logarithm_of_the_number_of_entries() -> None:
    assert objective(simulated(7), 0.1, 0.1).value(np.zeros((1 + PHASES) * KNOWN.shape[1])) == pytest.approx(
        np.log(SIZE)
    )


def test_nothing_is_left_to_descend() -> None:
    choices = simulated(90)
    loss = objective(choices, 3e-4, 3e-3)
    weights = fit(choices, PHASES, shared=3e-4, deviation=3e-3)
    common = weights.sum(axis=0) / (PHASES + 3e-4 / 3e-3)  # Where the slope of the penalties alone is 0.
    found = np.concatenate([common, (weights - common).ravel()])
    assert np.abs(loss.slopes(found)[0]).max() < 1e-12


def test_features_off_by_rounding_give_the_same_rounded_weights() -> None:
    choices = simulated(90)
    noisy = [Choice(item.features * (1 + 4e-16), item.right, item.phase) for item in choices]
    one, other = (fit(items, PHASES, shared=3e-4, deviation=3e-3) for items in (choices, noisy))
    np.testing.assert_allclose(one, other, atol=1e-10)


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gates.tuning.logit._MAX_STEPS", 1)
    with pytest.raises(SchemaRouterError, match="did not converge in 1 Newton steps"):
        fit(simulated(90), PHASES, shared=1e-3, deviation=1e-2)


def test_known_weights_come_back() -> None:
    found = fit(simulated(6000), PHASES, shared=1e-6, deviation=1e-6)
    np.testing.assert_allclose(found, KNOWN, atol=0.15)


def test_a_stronger_penalty_makes_weights_smaller_and_phases_more_alike() -> None:
    choices = simulated(300)
    by_strength = [fit(choices, PHASES, shared=x, deviation=x) for x in (1e-4, 1e-2, 1.0)]
    sizes = [float(np.abs(weights).sum()) for weights in by_strength]
    assert sizes[0] > sizes[1] > sizes[2]
    apart = [float(np.ptp(fit(choices, PHASES, shared=1e-4, deviation=x), axis=0).sum()) for x in (1e-4, 1e-2, 10.0)]
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] < 0.05


def test_a_phase_without_choices_has_the_common_weights() -> None:
    choices = [choice for choice in simulated(300) if choice.phase != 2]
    found = fit(choices, PHASES, shared=1e-3, deviation=1e-2)
    common = fit(choices, PHASES, shared=1e-3, deviation=1e-2)[:2].mean(axis=0)
    np.testing.assert_allclose(found[2], common, atol=0.3)
    assert (np.abs(found[2]) > 0).all()


def test_a_feature_that_is_always_0_weighs_nothing_and_the_order_of_choices_does_not_matter() -> None:
    choices = [Choice(choice.features * [1, 1, 0, 1], choice.right, choice.phase) for choice in simulated(90)]
    found = fit(choices, PHASES, shared=1e-3, deviation=1e-2)
    assert (found[:, 2] == 0).all()
    np.testing.assert_allclose(fit(choices[::-1], PHASES, shared=1e-3, deviation=1e-2), found, atol=1e-10)


def test_the_same_choices_give_the_same_bytes() -> None:
    one, again = (fit(simulated(90), PHASES, shared=1e-3, deviation=1e-2) for _ in range(2))
    assert one.tobytes() == again.tobytes()


def test_several_right_entries_share_a_choice() -> None:
    features = np.asarray([[1.0], [1.0], [0.0]])
    both = fit([Choice(features, (0, 1), 0)], 1, shared=0.1, deviation=0.1)
    one = fit([Choice(features, (0,), 0), Choice(features, (1,), 0)], 1, shared=0.1, deviation=0.1)
    np.testing.assert_allclose(both, one, atol=1e-5)
    assert both[0, 0] > 0
