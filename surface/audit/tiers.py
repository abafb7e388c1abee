"""Figures by which the three tiers of the catalog are one kind: only then does a larger catalog differ in its size alone."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import orjson
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import rankdata

from schemarouter.catalog import Capability, Catalog
from schemarouter.catalog.capability import Contract
from schemarouter.retrieval.evidence.lexicon import FOLDER
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.text import tokenize
from surface.audit.figure import Figure
from surface.loader import Surface

REQUESTS = Path(__file__).resolve().parent / "tier_requests.json"
REQUESTS_OF_A_TIER = 100
# How far the tiers may lie apart: shares in percentage points, means in percent of the smallest.
MAX_POINTS, MAX_PERCENT = 5.0, 5.0
AUC_BOUNDS = (0.45, 0.55)
_FOLDS = 10
_TOP = 5
# Floats of shape (n,) or (n, n).
Floats = NDArray[np.float64]
Measure = Callable[[Capability], float]


@dataclass(frozen=True, slots=True)
class Request:
    """What a user might write to be shown a route."""

    route: str
    request: str


def by_tier(catalog: Catalog) -> dict[int, tuple[Capability, ...]]:
    """The endpoints of each tier, the smallest tier first."""
    found: defaultdict[int, list[Capability]] = defaultdict(list)
    for item in catalog.capabilities:
        found[item.tier].append(item)
    return {tier: tuple(found[tier]) for tier in sorted(found)}


def is_opener(item: Capability) -> bool:
    """Whether a plan can begin with it: it reads, and needs no identifier."""
    return item.effect == "read" and not any(p.is_identifier for p in item.required_parameters)


def _fields(item: Capability) -> tuple[Contract, ...]:
    return (*item.parameters, *item.outputs)


SHARES: Mapping[str, Measure] = {
    "reads": lambda item: item.effect == "read",
    "writes": lambda item: item.effect == "write",
    "destructive": lambda item: item.effect == "destructive",
    "openers": is_opener,
    "identifier required": lambda item: any(p.is_identifier for p in item.required_parameters),
}
MEANS: Mapping[str, Measure] = {
    "identifiers taken": lambda item: sum(p.is_identifier for p in item.parameters),
    "identifiers given": lambda item: sum(f.is_identifier for f in item.outputs),
    "parameters": lambda item: len(item.parameters),
    "outputs": lambda item: len(item.outputs),
    "characters of description": lambda item: len(item.description),
    "tokens of description": lambda item: len(tokenize(item.description)),
}


def share(catalog: Catalog, name: str) -> Figure:
    """Share of the endpoints of each tier that a measure of `SHARES` is true of."""
    found = {tier: 100 * fmean(map(SHARES[name], items)) for tier, items in by_tier(catalog).items()}
    return _shares(f"{name}, share by tier", found)


def fields_with_unit(catalog: Catalog) -> Figure:
    """Share of the fields of each tier that have a unit."""
    found = {
        tier: 100 * fmean(field.unit is not None for item in items for field in _fields(item))
        for tier, items in by_tier(catalog).items()
    }
    return _shares("fields with a unit, share by tier", found)


def mean(catalog: Catalog, name: str) -> Figure:
    """Mean of a measure of `MEANS` over the endpoints of each tier."""
    found = {tier: fmean(map(MEANS[name], items)) for tier, items in by_tier(catalog).items()}
    apart = 100 * (max(found.values()) / min(found.values()) - 1) if min(found.values()) else float("inf")
    text = ", ".join(f"{value:.2f} ({tier})" for tier, value in found.items())
    return Figure(
        f"{name}, mean by tier", f"{text}: {apart:.1f} % apart", apart <= MAX_PERCENT, f"≤ {MAX_PERCENT:.0f} % apart"
    )


def _shares(name: str, found: Mapping[int, float]) -> Figure:
    """A figure of one share for each tier, in percent."""
    apart = max(found.values()) - min(found.values())
    text = ", ".join(f"{value:.1f} % ({tier})" for tier, value in found.items())
    return Figure(name, f"{text}: {apart:.1f} points apart", apart <= MAX_POINTS, f"≤ {MAX_POINTS:.0f} points apart")


def contract_words(item: Capability) -> list[str]:
    """The words of a contract: its route, effect and description, and the names and descriptions of its fields."""
    fields = " ".join(f"{field.name} {field.description}" for field in _fields(item))
    return tokenize(f"{item.route_id} {item.effect} {item.description} {fields}")


def tier_told(catalog: Catalog) -> Figure:
    """How well a classifier that reads contracts tells their tier: the area under its curve, on providers it has not seen."""
    similarity, folds = _similarities(catalog), _folds(catalog)
    tiers = np.array([item.tier for item in catalog.capabilities])
    areas = {int(tier): _area(similarity, folds, tiers == tier) for tier in np.unique(tiers)}
    core = areas[min(areas)]
    text = f"{core:.3f} for {min(areas)} against the rest; mean of all tiers {fmean(areas.values()):.3f}"
    low, high = AUC_BOUNDS
    return Figure("tier told from the contract, AUC", text, low <= core <= high, f"{low} to {high}")


def _similarities(catalog: Catalog) -> Floats:
    """Products of the TF-IDF vectors of all contracts, shape (n, n)."""
    counts = [Counter(contract_words(item)) for item in catalog.capabilities]
    numbers = {word: number for number, word in enumerate(sorted({word for count in counts for word in count}))}
    matrix = np.zeros((len(counts), len(numbers)))
    for row, count in enumerate(counts):
        for word, times in count.items():
            matrix[row, numbers[word]] = 1 + np.log(times)
    matrix *= np.log((1 + len(counts)) / (1 + np.count_nonzero(matrix, axis=0))) + 1
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix @ matrix.T, np.float64)


def _folds(catalog: Catalog) -> NDArray[np.int64]:
    """The fold of each endpoint: providers stay whole, the largest are dealt first, each to the smallest fold."""
    sizes = Counter(item.provider for item in catalog.capabilities)
    load, fold_of = [0] * _FOLDS, {}
    for provider, size in sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])):
        fold_of[provider] = load.index(min(load))
        load[fold_of[provider]] += size
    return np.array([fold_of[item.provider] for item in catalog.capabilities], np.int64)


def _area(similarity: Floats, folds: NDArray[np.int64], wanted: NDArray[np.bool_]) -> float:
    """Area under the curve of the scores that a logistic regression gives to the endpoints of folds it was not fitted to."""
    scores = np.zeros(len(wanted))
    for fold in np.unique(folds):
        rest = folds != fold
        if wanted[rest].any() and not wanted[rest].all():
            weights, bias = _logistic(similarity[np.ix_(rest, rest)], wanted[rest])
            scores[~rest] = similarity[np.ix_(~rest, rest)] @ weights + bias
    ranks, positive = rankdata(scores), int(wanted.sum())
    return float((ranks[wanted].sum() - positive * (positive + 1) / 2) / (positive * (len(wanted) - positive)))


def _logistic(similarity: Floats, wanted: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Weights and bias of a ridge logistic regression in the products of its examples; both classes weigh the same."""
    signs = np.where(wanted, 1.0, -1.0)
    loads = np.where(wanted, 0.5 / wanted.mean(), 0.5 / (1 - wanted.mean()))

    def loss(values: Floats) -> tuple[float, Floats]:
        products = similarity @ values[:-1]
        margins = signs * (products + values[-1])
        slopes = -loads * signs / (1 + np.exp(np.clip(margins, -500, 500)))
        cost = float(loads @ np.logaddexp(0, -margins) + values[:-1] @ products / 2)
        return cost, np.append(similarity @ slopes + products, slopes.sum())

    found = minimize(loss, np.zeros(len(signs) + 1), jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return found[:-1], float(found[-1])


def drawn_routes(catalog: Catalog, *, seed: int = 1) -> dict[int, tuple[str, ...]]:
    """The routes of each tier that requests are written for: the first in an order by hash, which is no order of writing."""

    def order(route: str) -> str:
        return hashlib.sha256(f"{seed} {route}".encode()).hexdigest()

    routes = {tier: [item.route_id for item in items] for tier, items in by_tier(catalog).items()}
    return {tier: tuple(sorted(sorted(ids, key=order)[:REQUESTS_OF_A_TIER])) for tier, ids in routes.items()}


def load_requests(path: Path = REQUESTS) -> tuple[Request, ...]:
    """The requests that were written for drawn routes."""
    return tuple(Request(**entry) for entry in orjson.loads(path.read_bytes()))


def others_found(catalog: Catalog, requests: Iterable[Request], spec: str, *, bounded: bool) -> Figure:
    """Share of each tier among the first places of a request, with the endpoint it was written for taken out."""
    counts: Counter[int] = Counter()
    for item in requests:
        others = Catalog((c for c in catalog.capabilities if c.route_id != item.route), name=catalog.name)
        counts.update(catalog[route].tier for route in build_retriever(spec, others).rank(item.request, k=_TOP).ids)
    found = {tier: 100 * counts[tier] / max(1, counts.total()) for tier in by_tier(catalog)}
    due = {tier: 100 * len(items) / len(catalog) for tier, items in by_tier(catalog).items()}
    text = ", ".join(f"{found[tier]:.1f} % ({tier}, due {due[tier]:.0f} %)" for tier in found)
    holds = all(abs(found[tier] - due[tier]) <= MAX_POINTS for tier in found)
    return Figure(
        f"tiers among the first {_TOP} of {spec}",
        text,
        holds or not bounded,
        f"within {MAX_POINTS:.0f} points" if bounded else "",
    )


def lexicon_entries(catalog: Catalog, folder: Path = FOLDER) -> Figure:
    """Mean number of entries that a list of the cross-lingual lexicon derived from an endpoint, by tier; reported."""
    lists = [orjson.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    sources = Counter(entry["from"].removeprefix("catalog:") for entries in lists for entry in entries.values())
    text = ", ".join(
        f"{fmean(sources[item.route_id] for item in items) / max(1, len(lists)):.1f} ({tier})"
        for tier, items in by_tier(catalog).items()
    )
    return Figure("lexicon entries an endpoint and list", text)


def gold_frequency(training: Surface, evaluated: Surface, top_k: int) -> Figure:
    """Recall@k of the first route by a baseline that ranks routes by how often training tasks required them; reported."""
    counts = Counter(route for task in training.tasks for route in task.key.required_routes)
    ranked = [route for route, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    hits = [task.key.steps[0].route in ranked[:top_k] for task in evaluated.tasks]
    text = f"{sum(hits) / max(1, len(hits)):.1%} ({sum(hits)} of {len(hits)}), ranked by the {training.name} tasks"
    return Figure(f"first-route Recall@{top_k} of how often a route was gold, {evaluated.name}", text)


def figures(catalog: Catalog, requests: Sequence[Request]) -> list[Figure]:
    """Every figure of the tiers; those of retrievers take most of a minute."""
    return [
        *(share(catalog, name) for name in SHARES),
        fields_with_unit(catalog),
        *(mean(catalog, name) for name in MEANS),
        tier_told(catalog),
        *(others_found(catalog, requests, spec, bounded=True) for spec in ("bm25", "dense")),
        others_found(catalog, requests, "typed", bounded=False),
        lexicon_entries(catalog),
    ]
