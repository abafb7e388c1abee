"""Conditional logit (McFadden 1974) with weights shared by all phases and a deviation for each, by penalised likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]
_ITERATIONS = 150


@dataclass(frozen=True)
class Choice:
    """One moment: the figures of every entry, shape (n, features), which entries are right, and the phase."""

    figures: Floats
    right: tuple[int, ...]
    phase: int


def fit(choices: Sequence[Choice], phases: int, *, shared: float, deviation: float) -> Floats:
    """Weights by phase, shape (phases, features).

    Minimises the mean negative log-likelihood plus `shared` times the squared common weights and `deviation` times the squared
    deviations of the phases from them.
    """
    ordered = sorted(choices, key=lambda choice: choice.phase)
    size, features = ordered[0].figures.shape
    figures = np.concatenate([choice.figures for choice in ordered])
    right = np.zeros((len(ordered), size))
    for row, choice in enumerate(ordered):
        right[row, list(choice.right)] = 1.0 / len(choice.right)
    counts = np.bincount([choice.phase for choice in ordered], minlength=phases)
    ends = np.cumsum(counts)
    spans = [(int(end - count), int(end)) for end, count in zip(ends, counts, strict=True)]

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(1 + phases, features)
        gradient = np.zeros_like(weights)
        loss = 0.0
        for phase, (start, end) in enumerate(spans):
            rows = figures[start * size : end * size]
            scores = (rows @ (weights[0] + weights[1 + phase])).reshape(-1, size)
            scores -= scores.max(axis=1, keepdims=True)
            odds = np.exp(scores)
            total = odds.sum(axis=1, keepdims=True)
            loss -= float((right[start:end] * (scores - np.log(total))).sum())
            gradient[1 + phase] = rows.T @ (odds / total - right[start:end]).ravel()
        gradient[0] = gradient[1:].sum(axis=0)
        gradient /= len(ordered)
        gradient[0] += 2 * shared * weights[0]
        gradient[1:] += 2 * deviation * weights[1:]
        penalty = shared * float((weights[0] ** 2).sum()) + deviation * float((weights[1:] ** 2).sum())
        return loss / len(ordered) + penalty, gradient.ravel()

    start = np.zeros((1 + phases) * features)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
    weights: Floats = found.x.reshape(1 + phases, features)
    by_phase: Floats = weights[0] + weights[1:]
    return by_phase
