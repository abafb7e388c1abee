"""Figures by which a surface is judged varied, natural and hard: each with its bound where there is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import combinations

from preregistration.protocol import Protocol
from schemarouter.catalog import Catalog
from schemarouter.errors import InvalidRunError
from schemarouter.retrieval.language import language_of
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.text import tokenize
from surface.audit.figure import Figure
from surface.audit.shapes import ready_set_sizes, shape_figures
from surface.audit.twins import finishes_with_twin, near_twins, wrong_identifiers
from surface.audit.validate import check_task, skeleton
from surface.loader import TOGETHER, TUNING, Surface
from surface.task import Task, chain

MAX_JACCARD = 0.35
MAX_ROUTE_SHARE = 0.06
MAX_DESCRIPTION_OVERLAP = 0.8
MAX_FAMILY = 2
_NGRAM = 4


def ngrams(query: str) -> frozenset[tuple[str, ...]]:
    """Token 4-grams of a prompt with identifiers and numbers masked."""
    tokens = tokenize(skeleton(query).replace("#", " "))
    return frozenset(zip(*(tokens[i:] for i in range(_NGRAM)), strict=False))


def jaccard(one: frozenset[object], other: frozenset[object]) -> float:
    """Shared share of two sets; 0 for two empty ones."""
    union = one | other
    return len(one & other) / len(union) if union else 0.0


def prompt_overlap(tasks: Sequence[Task]) -> Figure:
    """Largest 4-gram Jaccard between two prompts of a language."""
    grams = {task.prompt.id: ngrams(task.prompt.query) for task in tasks}
    pairs = [
        (jaccard(grams[a.prompt.id], grams[b.prompt.id]), a.prompt.id, b.prompt.id)
        for a, b in combinations(tasks, 2)
        if a.prompt.language == b.prompt.language
    ]
    worst = max(pairs, default=(0.0, "", ""))
    return Figure(
        "largest 4-gram Jaccard of two prompts of a language",
        f"{worst[0]:.3f} ({worst[1]}, {worst[2]})",
        worst[0] <= MAX_JACCARD,
        f"≤ {MAX_JACCARD}",
    )


def encoder_similarity(tasks: Sequence[Task]) -> Figure:
    """Largest cosine between the encoder's vectors of two prompts, reported."""
    from schemarouter.retrieval.dense import shared_encoder

    matrix = shared_encoder("use-m3")[0].encode([task.prompt.query for task in tasks])
    cosines = matrix @ matrix.T
    best = max(
        ((float(cosines[i, j]), tasks[i].prompt.id, tasks[j].prompt.id) for i, j in combinations(range(len(tasks)), 2)),
        default=(0.0, "", ""),
    )
    return Figure("largest encoder cosine of two prompts", f"{best[0]:.3f} ({best[1]}, {best[2]})")


def distinct_chains(tasks: Sequence[Task], *, minimum: int) -> Figure:
    """How many different route chains the plans have."""
    count = len({tuple(chain(task.key)) for task in tasks})
    return Figure("different route chains", f"{count} of {len(tasks)}", count >= minimum, f"≥ {minimum}")


def chain_similarity(tasks: Sequence[Task]) -> Figure:
    """How many pairs of plans share their chain, and the mean similarity of chains (matching blocks)."""
    chains = [list(chain(task.key)) for task in tasks]
    ratios = [SequenceMatcher(None, a, b, autojunk=False).ratio() for a, b in combinations(chains, 2)]
    equal = sum(ratio == 1.0 for ratio in ratios)
    mean = sum(ratios) / len(ratios) if ratios else 0.0
    return Figure("similarity of chains", f"mean {mean:.3f}, {equal} equal pairs of {len(ratios)}")


def route_share(tasks: Sequence[Task]) -> Figure:
    """The most frequent route's share of all required steps."""
    counts = Counter(step.route for task in tasks for step in task.key.steps)
    route, count = counts.most_common(1)[0] if counts else ("", 0)
    total = max(1, counts.total())
    share = count / total
    text = f"{share:.1%} ({route}, {count} of {total} steps)"
    return Figure("most frequent route", text, share <= MAX_ROUTE_SHARE, f"≤ {MAX_ROUTE_SHARE:.0%}")


def languages(tasks: Sequence[Task]) -> Figure:
    """Prompts whose script and function words are not those of their cell."""
    wrong = [t.prompt.id for t in tasks if language_of(t.prompt.query) != t.prompt.language]
    return Figure(
        "prompts in another language than their cell", f"{len(wrong)} {' '.join(wrong)}".strip(), not wrong, "0"
    )


def description_overlap(catalog: Catalog) -> Figure:
    """Largest token Jaccard between the descriptions of two endpoints."""
    tokens = [(item.route_id, frozenset(tokenize(item.description))) for item in catalog.capabilities]
    best = max(((jaccard(a, b), x, y) for (x, a), (y, b) in combinations(tokens, 2)), default=(0.0, "", ""))
    return Figure(
        f"largest description overlap at {len(catalog)}",
        f"{best[0]:.3f} ({best[1]}, {best[2]})",
        best[0] <= MAX_DESCRIPTION_OVERLAP,
        f"≤ {MAX_DESCRIPTION_OVERLAP}",
    )


def identifier_kinds(catalog: Catalog) -> dict[str, tuple[int, int]]:
    """Per identifier kind, how many endpoints give it and how many take it."""
    gives: Counter[str] = Counter()
    takes: Counter[str] = Counter()
    for item in catalog.capabilities:
        gives.update({f.semantic_id for f in item.outputs if f.is_identifier and f.semantic_id})
        takes.update({f.semantic_id for f in item.parameters if f.is_identifier and f.semantic_id})
    return {kind: (gives[kind], takes[kind]) for kind in sorted({*gives, *takes})}


def givers_and_takers(catalog: Catalog, *, minimum: int) -> Figure:
    """Mean number of endpoints that give, and that take, an identifier kind."""
    kinds = identifier_kinds(catalog)
    gives = sum(pair[0] for pair in kinds.values()) / max(1, len(kinds))
    takes = sum(pair[1] for pair in kinds.values()) / max(1, len(kinds))
    text = f"{gives:.1f} give, {takes:.1f} take, {len(kinds)} kinds"
    return Figure(
        f"endpoints per identifier kind at {len(catalog)}", text, min(gives, takes) >= minimum, f"≥ {minimum}"
    )


def effects(catalog: Catalog) -> Figure:
    """Shares of write and destructive endpoints."""
    counts = Counter(item.effect for item in catalog.capabilities)
    write, destructive = counts["write"] / len(catalog), counts["destructive"] / len(catalog)
    text = f"{write:.1%} write, {destructive:.1%} destructive"
    return Figure(f"effects at {len(catalog)}", text, write >= 0.30 and destructive >= 0.12, "≥ 30 % and ≥ 12 %")


def named_routes(tasks: Sequence[Task]) -> Figure:
    """How many steps the query names (every word of the operation stands in it) and how many it makes evident; reported."""
    steps = [(task, step) for task in tasks for step in task.key.steps]
    named = sum(
        set(step.route.partition(".")[2].split("_")) <= set(tokenize(task.prompt.query)) for task, step in steps
    )
    evident = sum(step.role == "evident" for _, step in steps)
    silent = sum(any(step.role != "evident" for step in task.key.steps) for task in tasks)
    return Figure(
        "steps named word for word in the query",
        f"{named} of {len(steps)}; evident {evident}; prompts silent on a latent or corrective step {silent} of {len(tasks)}",
        2 * silent >= len(tasks),
        "at least half silent",
    )


def families(surface: Surface) -> Figure:
    """Families of tasks that tell one plot, and the largest of them; on a surface for tuning without bound."""
    sizes = Counter(surface.family(task.prompt.id) for task in surface.tasks)
    largest = max(sizes.values(), default=0)
    shared = sum(size > 1 for size in sizes.values())
    text = f"{shared} of several tasks, the largest of {largest}; {len(sizes)} stories in {len(surface.tasks)} tasks"
    if surface.name in (*TUNING, TOGETHER):
        return Figure("families", text)
    return Figure("families", text, largest <= MAX_FAMILY, f"at most {MAX_FAMILY} tasks each")


def bm25_difficulty(surface: Surface, catalog: Catalog, *, top_k: int) -> Figure:
    """Plain BM25's Recall@k of the first route, by language; reported.

    Raises InvalidRunError for any surface but those for tuning: nothing ranks for a frozen prompt.
    """
    if surface.name not in TUNING:
        raise InvalidRunError(f"BM25 ranks for prompts of {' and '.join(TUNING)} alone, not of {surface.name}.")
    tasks = surface.tasks
    retriever = build_retriever("bm25", catalog)
    hits: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for task in tasks:
        totals[task.prompt.language] += 1
        hits[task.prompt.language] += task.key.steps[0].route in retriever.rank(task.prompt.query, k=top_k).ids
    parts = [f"{name} {hits[name] / totals[name]:.0%}" for name in sorted(totals)]
    return Figure(f"BM25 first-route Recall@{top_k} at {len(catalog)}", ", ".join(parts))


def faults(surface: Surface, *, min_classes: int, min_corrected: int) -> Figure:
    """Error classes, and how many recoverable failures a step of another capability takes away."""
    classes = {fault.error_class for task in surface.tasks for fault in task.key.faults}
    recoverable = [t for t in surface.tasks if surface.stratum(t.prompt.id) == "recoverable_execution_failure"]
    corrected = sum(any(fault.cured_by for fault in task.key.faults) for task in recoverable)
    holds = corrected >= min_corrected and len(classes) >= min_classes
    text = f"{len(classes)} error classes; {corrected} of {len(recoverable)} recoverable failures corrected by another capability"
    return Figure("faults", text, holds, f"≥ {min_classes} classes, ≥ {min_corrected} corrected")


def dimensions(surface: Surface, catalog: Catalog, *, minimum: int) -> Figure:
    """Dimensions of quantities that typed-unit plans hand from one step to the next."""
    found: set[str] = set()
    for task in surface.tasks:
        if surface.stratum(task.prompt.id) == "typed_unit_state_transition":
            for step in task.key.steps:
                parameters = catalog[step.route].parameters_by_name
                found |= {parameters[n].dimension or "" for n, rule in step.arguments.items() if rule.observed} - {""}
    return Figure(
        "dimensions in typed-unit plans",
        f"{len(found)}: {' '.join(sorted(found))}",
        len(found) >= minimum,
        f"≥ {minimum}",
    )


def destructive(surface: Surface, catalog: Catalog, *, minimum: int, min_near: int) -> Figure:
    """Tasks with an authorised destructive step, and tasks with a destructive twin of a required route at hand."""
    authorised = sum(bool(task.key.authorised) for task in surface.tasks)
    near = sum(bool(destructive_twins(task, catalog)) for task in surface.tasks)
    text = f"{authorised} tasks with one authorised; {near} with a destructive twin near at hand"
    holds = authorised >= minimum and near >= min_near
    return Figure("destructive steps", text, holds, f"≥ {minimum} and ≥ {min_near}")


def destructive_twins(task: Task, catalog: Catalog) -> list[str]:
    """Destructive routes that the plan does not need, of a provider it needs, on an identifier it uses."""
    used = {
        f.semantic_id
        for step in task.key.steps
        for f in (*catalog[step.route].parameters, *catalog[step.route].outputs)
        if f.is_identifier
    }
    providers = {catalog[step.route].provider for step in task.key.steps}
    return [
        item.route_id
        for item in catalog.capabilities
        if item.effect == "destructive"
        and item.provider in providers
        and item.route_id not in task.key.required_routes
        and any(p.semantic_id in used for p in item.required_parameters)
    ]


def providers(tasks: Sequence[Task], catalog: Catalog) -> Figure:
    """Providers of a catalog that some plan uses."""
    known = {item.provider for item in catalog.capabilities}
    unused = sorted(known - {catalog[step.route].provider for task in tasks for step in task.key.steps})
    text = f"{len(known) - len(unused)} of {len(known)} {' '.join(unused)}".strip()
    return Figure(f"providers of the {len(catalog)} in use", text, not unused, "all")


def plans(tasks: Sequence[Task], catalogs: Mapping[int, Catalog], *, max_load: int) -> Figure:
    """Plans that are carried out from observables alone at every size."""
    stuck = sorted(
        {t.prompt.id for catalog in catalogs.values() for t in tasks if any(check_task(t, catalog, max_load=max_load))}
    )
    text = f"{len(tasks) - len(stuck)} of {len(tasks)} {' '.join(stuck)}".strip()
    return Figure(f"plans carried out at {', '.join(map(str, catalogs))}", text, not stuck, "all")


def wrong_twins(tasks: Sequence[Task], catalog: Catalog) -> Figure:
    """Plans in which a near twin replaces a step, and how many of them complete the task."""
    calls, finished = 0, []
    for task in tasks:
        for step in task.key.steps:
            for twin in near_twins(catalog[step.route], catalog):
                if twin.route_id not in task.key.required_routes:
                    calls += 1
                    if finishes_with_twin(task, catalog, step.id, twin):
                        finished.append(f"{task.prompt.id}.{step.id}:{twin.route_id}")
    text = f"{len(finished)} of {calls} {' '.join(finished)}".strip()
    return Figure(f"plans that a wrong twin completes at {len(catalog)}", text, not finished, "0")


def refused_identifiers(surface: Surface, catalog: Catalog) -> Figure:
    """Wrong identifiers at hand that a step takes, and identifier tasks that have none at hand."""
    tried, taken, bare = 0, [], []
    for task in surface.tasks:
        answers = list(wrong_identifiers(task, catalog))
        tried += len(answers)
        taken += [f"{task.prompt.id}.{step}:{name}" for step, name, answer in answers if not answer.failed]
        if surface.stratum(task.prompt.id) == "identifier_provenance_propagation" and not answers:
            bare.append(task.prompt.id)
    text = f"{len(taken)} of {tried} {' '.join(taken)}".strip() + f"; identifier tasks without one {len(bare)}"
    return Figure("wrong identifiers taken", f"{text} {' '.join(bare)}".strip(), not taken and not bare, "0 and 0")


def figures(
    surface: Surface, protocol: Protocol, catalogs: Mapping[int, Catalog], bounds: Mapping[str, int]
) -> list[Figure]:
    """Every figure of a surface. `bounds` holds the minimum numbers, by the names of `BOUNDS`.

    BM25's difficulty is among them for the surfaces for tuning alone; plan shapes where one grammar must not be learnt: for
    the frozen tasks, and for those for tuning together.
    """
    tasks, largest, smallest = surface.tasks, catalogs[max(catalogs)], catalogs[min(catalogs)]
    checks: list[Callable[[], Figure]] = [
        lambda: prompt_overlap(tasks),
        lambda: encoder_similarity(tasks),
        lambda: distinct_chains(tasks, minimum=bounds["chains"]),
        lambda: chain_similarity(tasks),
        lambda: route_share(tasks),
        lambda: languages(tasks),
        lambda: providers(tasks, smallest),
        lambda: description_overlap(largest),
        lambda: effects(largest),
        lambda: givers_and_takers(largest, minimum=4),
        lambda: named_routes(tasks),
        lambda: faults(surface, min_classes=bounds["error_classes"], min_corrected=bounds["corrected"]),
        lambda: dimensions(surface, smallest, minimum=bounds["dimensions"]),
        lambda: destructive(surface, smallest, minimum=bounds["destructive"], min_near=bounds["near"]),
    ]
    if surface.name in TUNING:
        checks.append(lambda: bm25_difficulty(surface, largest, top_k=protocol.conditions.top_k))
    checks.append(lambda: families(surface))
    shapes = [] if surface.name in TUNING else shape_figures(tasks, smallest)
    return [*(check() for check in checks), *shapes, ready_set_sizes(tasks, smallest)]


def proofs(surface: Surface, protocol: Protocol, catalogs: Mapping[int, Catalog]) -> list[Figure]:
    """Figures from carrying out the plans, as written and with one step done wrong; takes seconds."""
    return [
        plans(surface.tasks, catalogs, max_load=protocol.episode.max_steps_and_failures),
        wrong_twins(surface.tasks, catalogs[max(catalogs)]),
        refused_identifiers(surface, catalogs[min(catalogs)]),
    ]


# For both surfaces together: what they may share counts once, what no two tasks share adds up.
BOUNDS: Mapping[str, Mapping[str, int]] = {
    "development": {"chains": 70, "error_classes": 12, "corrected": 12, "dimensions": 10, "destructive": 10, "near": 1},
    "training": {"chains": 130, "error_classes": 15, "corrected": 25, "dimensions": 15, "destructive": 24, "near": 40},
    "frozen": {"chains": 130, "error_classes": 15, "corrected": 25, "dimensions": 15, "destructive": 24, "near": 40},
    TOGETHER: {"chains": 130, "error_classes": 15, "corrected": 37, "dimensions": 15, "destructive": 34, "near": 41},
}
