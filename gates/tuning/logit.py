"""Conditional logit (McFadden 1974) by penalised likelihood, with shared weights and a deviation from them for each phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from schemarouter.errors import SchemaRouterError

Floats = NDArray[np.float64]
_MAX_STEPS = 100
# Half the squared Newton decrement bounds, near the optimum, how far the objective still is above its minimum.
_NEAR_OPTIMUM, _CONVERGED = 1e-8, 1e-22


@dataclass(frozen=True)
class Choice:
    """One decision point: the features of every entry, shape (n, features), which entries are right, and the phase."""

    features: Floats
    right: tuple[int, ...]
    phase: int


class Objective:
    """The mean negative log-likelihood plus the penalties: strictly convex, so that it has one minimum."""

    def __init__(self, choices: Sequence[Choice], phases: int, shared: float, deviation: float) -> None:
        ordered = sorted(choices, key=lambda choice: choice.phase)
        self.size, self.n_features = ordered[0].features.shape
        self.features = np.concatenate([choice.features for choice in ordered])
        self.right = np.zeros((len(ordered), self.size))
        for row, choice in enumerate(ordered):
            self.right[row, list(choice.right)] = 1.0 / len(choice.right)
        ends = np.cumsum(np.bincount([choice.phase for choice in ordered], minlength=phases))
        self.spans = list(zip([0, *ends[:-1]], ends, strict=True))
        self.penalties = np.repeat([shared] + [deviation] * phases, self.n_features)

    def _likelihood(self, phase: int, weights: Floats) -> tuple[Floats, Floats, float]:
        """Features of a phase, (n_points * n, features), probabilities of every entry, (n_points, n), and the summed loss.

        The loss is the negative log-likelihood of the right entries.
        """
        start, end = self.spans[phase]
        rows = self.features[start * self.size : end * self.size]
        scores = (rows @ (weights[0] + weights[1 + phase])).reshape(-1, self.size)
        scores -= scores.max(axis=1, keepdims=True)
        odds = np.exp(scores)
        total = odds.sum(axis=1, keepdims=True)
        return rows, odds / total, -float((self.right[start:end] * (scores - np.log(total))).sum())

    def value(self, flat: Floats) -> float:
        """The objective at some weights, shape ((1 + phases) * n_features,)."""
        weights = flat.reshape(-1, self.n_features)
        losses = [self._likelihood(phase, weights)[2] for phase in range(len(self.spans))]
        return sum(losses) / len(self.right) + float(self.penalties @ flat**2)

    def slopes(self, flat: Floats) -> tuple[Floats, Floats]:
        """Gradient and Hessian, shape (m,) and (m, m)."""
        weights = flat.reshape(-1, self.n_features)
        gradient = np.zeros_like(weights)
        count, features = weights.shape
        hessian = np.zeros((count, features, count, features))
        for phase, (start, end) in enumerate(self.spans):
            rows, shares, _ = self._likelihood(phase, weights)
            means = (shares[:, None, :] @ rows.reshape(-1, self.size, features))[:, 0]
            curvature = (rows * shares.reshape(-1, 1)).T @ rows - means.T @ means
            gradient[1 + phase] = rows.T @ (shares - self.right[start:end]).ravel()
            for a, b in ((0, 0), (0, 1 + phase), (1 + phase, 0), (1 + phase, 1 + phase)):
                hessian[a, :, b, :] += curvature
        gradient[0] = gradient[1:].sum(axis=0)
        flat_hessian = hessian.reshape(flat.size, flat.size) / len(self.right) + np.diag(2 * self.penalties)
        return gradient.ravel() / len(self.right) + 2 * self.penalties * flat, flat_hessian


def fit(choices: Sequence[Choice], phases: int, *, shared: float, deviation: float) -> Floats:
    """Weights by phase, shape (phases, features).

    Minimises the mean negative log-likelihood plus `shared` times the squared shared weights and `deviation` times the squared
    deviations of the phases from them, by damped Newton steps (Boyd and Vandenberghe 2004, algorithm 9.5) to the last digits
    that the arithmetic gives, so that rounded weights are the same whatever the order of its sums. Raises SchemaRouterError
    where it does not converge.
    """
    objective = Objective(choices, phases, shared, deviation)
    flat = np.zeros((1 + phases) * objective.n_features)
    for _ in range(_MAX_STEPS):
        gradient, hessian = objective.slopes(flat)
        step = cho_solve(cho_factor(hessian), gradient)
        decrement = float(gradient @ step) / 2
        flat = flat - _damping(objective, flat, step, decrement) * step
        if decrement <= _CONVERGED:
            weights: Floats = flat.reshape(1 + phases, objective.n_features)
            by_phase: Floats = weights[0] + weights[1:]
            return by_phase
    raise SchemaRouterError(f"the fit did not converge in {_MAX_STEPS} Newton steps; stronger penalties help.")


def _damping(objective: Objective, flat: Floats, step: Floats, decrement: float) -> float:
    """The share of a Newton step to take: all of it near the optimum, else what lowers the objective enough."""
    part = 1.0
    if decrement > _NEAR_OPTIMUM:
        value = objective.value(flat)
        while objective.value(flat - part * step) > value - part * decrement / 2:
            part /= 2
    return part
