"""The gate: `judge` makes the verdict of a complete run, from the six criteria down to every measure and slice.

The numbers of a criterion come from `gates.criteria`, their sums from `gates.episode_table`, their intervals from
`gates.statistics`, and what an episode adds to a sum from `gates.measures`.
"""

from __future__ import annotations

import numpy as np

from conditions.registry import ranks
from gates.aggregate import CompleteRun, EpisodesCounted, endings
from gates.criteria import SLICE_MEASURES, Criteria, rate
from gates.episode_table import EpisodeTable, GridSums, TaskSums
from gates.measures import BY_NAME
from gates.repeats import repeats
from gates.statistics import Statistics
from gates.verdict import Estimate, SliceEstimate, Verdict, VerdictProvenance
from preregistration.names import PROGRESSIVE, STATE_AWARE
from preregistration.protocol import Protocol
from schemarouter.agents import registry as agents
from schemarouter.retrieval import registry as retrievers

Slice = dict[str, SliceEstimate]


def judge(run: CompleteRun, protocol: Protocol) -> Verdict:
    """Judge a complete run.

    Args:
        run: The run, checked, replayed and measured, as `gates.aggregate.read_complete_run` returns it.
        protocol: The rules: bounds of the criteria, and seed, iterations and level of the intervals.

    Returns:
        The verdict: the criteria, every condition's measures, and the slices by catalog, language and stratum.

    Raises:
        DesignError: For counts whose sums could pass 64 bits, or cells that cannot be resampled.
    """
    statistics = Statistics(run.cells, protocol.statistics)
    criteria = Criteria(run, protocol, statistics)
    judged = criteria.all()
    return Verdict(
        schema_version=1,
        stamp=run.header.stamp,
        confirmatory=protocol.confirmatory and run.header.stamp == "",
        passed=all(item.passed for item in judged),
        criteria=judged,
        conditions={name: _estimates(criteria, name) for name in run.plan.conditions},
        endings=endings(criteria.sums, run.plan),
        slices=_slices(criteria.sums, statistics, run),
        repeats=repeats(run.rows, run.plan),
        notes=(*_notes(run.rows, run.infrastructure_attempts),),
        provenance=VerdictProvenance(
            identities=run.header.identities,
            plan_fingerprint=run.plan.fingerprint,
            provenance=run.header.provenance,
            counts_sha256=statistics.fingerprint,
            episodes=EpisodesCounted(counted=len(run.rows), expected=len(run.plan.units)),
            agent_note=_agent_note(run.header.identities.agent),
            retriever_note=_retriever_note(run.header.identities.retriever, run.header.surface),
        ),
    )


def _retriever_note(retriever: str, surface: str) -> str:
    """That the retriever was fitted to the very tasks of the run, where it was."""
    if not retrievers.fitted_to(retriever, surface):
        return ""
    return (
        f"The retriever was fitted to the {surface} tasks, so these figures are higher than on others; "
        "docs/retriever.md has those out of fold."
    )


def _agent_note(agent: str) -> str:
    """What a reader has to know of the agent: what it declares, and nothing that it does not."""
    name = agent.partition("(")[0]
    if name not in agents.AGENTS:
        return f"The agent, {agent}, unknown here."
    declared = agents.declaration(name)
    if declared.knows_plan:
        says = "It knows the plan, so this measures retrieval, not a language model."
    else:
        qualities = {"deterministic": declared.deterministic, "simulated": declared.simulated}
        said = " and ".join(f"is {'' if holds else 'not '}declared {name}" for name, holds in qualities.items())
        says = f"It is not told the plan, {said}: this measures retrieval and the agent together."
    return f"The agent, {agent}, {declared.summary}. {says}"


def _estimates(criteria: Criteria, condition: str) -> dict[str, Estimate]:
    """Every measure of a condition."""
    estimates = {}
    for name in BY_NAME:
        numerator, denominator = criteria.ratio(condition, name)
        estimates[name] = Estimate(
            numerator=numerator,
            denominator=denominator,
            value=rate((numerator, denominator)),
            intervals=criteria.intervals(condition, name),
        )
    return estimates


def _slices(
    sums: GridSums, statistics: Statistics, run: CompleteRun
) -> dict[str, dict[str, dict[str, dict[str, SliceEstimate]]]]:
    """The three rates of the ranking conditions by catalog, language and stratum, with logit-t intervals of the tasks inside."""
    conditions = {name: sums.by_task(name) for name in run.plan.conditions if ranks(name)}
    groups: dict[str, dict[str, dict[str, TaskSums]]] = {
        "catalog": {str(size): {name: sums.by_task(name, size) for name in conditions} for size in sums.catalogs},
    }
    for slicing, part in (("language", 2), ("stratum", 0)):
        labels = np.array([run.cells[task].partition("/")[part] for task in statistics.design.tasks])
        groups[slicing] = {
            label: {name: by_task.within(labels == label) for name, by_task in conditions.items()}
            for label in set(labels.tolist())
        }
    return {
        slicing: {
            group: {name: _slice(part, statistics) for name, part in by_condition.items() if part.present.any()}
            for group, by_condition in sorted(by_group.items(), key=lambda item: (len(item[0]), item[0]))
            if any(part.present.any() for part in by_condition.values())
        }
        for slicing, by_group in groups.items()
    }


def _slice(part: TaskSums, statistics: Statistics) -> Slice:
    rates: Slice = {}
    inside = part.present
    cell_index = statistics.design.cell_index[inside]
    for name in SLICE_MEASURES:
        numerator, denominator = (side[inside] for side in part.pair(BY_NAME[name]))
        sums = int(numerator.sum()), int(denominator.sum())
        rates[name] = SliceEstimate(
            numerator=sums[0],
            denominator=sums[1],
            value=rate(sums),
            interval=statistics.of_slice(numerator, denominator, cell_index),
        )
    return rates


def _notes(rows: EpisodeTable, infrastructure_attempts: int) -> list[str]:
    """Notes beside the tables: attempts that were run again, and tokens over the episodes that both conditions pass."""
    notes = []
    if infrastructure_attempts:
        notes.append(
            f"{infrastructure_attempts} attempts ended by infrastructure failures; all are kept, and were run again."
        )
    aware, progressive = (_passed(rows, name) for name in (STATE_AWARE, PROGRESSIVE))
    both = [(aware[episode], index) for episode, index in progressive.items() if episode in aware]
    if both:
        tokens = rows.column("schema_tokens")
        means = [float(tokens[list(indexes)].sum()) / len(both) for indexes in zip(*both, strict=True)]
        notes.append(
            f"Tool-schema tokens over the {len(both)} episodes that both conditions pass: "
            f"state-aware {means[0]:.1f}, progressive {means[1]:.1f}."
        )
    return notes


def _passed(rows: EpisodeTable, condition: str) -> dict[tuple[str, int, int], int]:
    """Indexes of the episodes that a condition passes, by task, catalog and repeat."""
    passed = rows.column("passed").tolist()
    return {
        (unit.task, unit.catalog, unit.repeat): index
        for index, unit in enumerate(rows.units)
        if unit.condition == condition and passed[index]
    }
