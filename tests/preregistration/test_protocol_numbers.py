"""Each number, list and word of the protocol has an effect: changed alone, it changes what is done, judged or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from conditions.registry import make_condition
from conditions.running.plan import Plan, Unit, make_plan
from conditions.running.runner import Runner
from gates.bootstrap import counts_sha256, locked_counts
from gates.criteria import Criteria
from gates.episode_table import EpisodeRow
from gates.exploratory import stamp
from gates.measures import BY_NAME, EpisodeCounts
from gates.statistics import Statistics
from preregistration.lock import flatten
from preregistration.protocol import FILES, Protocol, load_protocol
from schemarouter.agents import registry as agents
from schemarouter.agents.base import Action
from schemarouter.canonical import canonical_json
from schemarouter.errors import InvalidRunError
from schemarouter.records import ModelTurn
from schemarouter.retrieval import registry as retrievers
from schemarouter.retrieval.spec import parse
from schemarouter.state import Call, Observation
from surface import loader
from surface.audit.validate import check_surface
from surface.loader import Surface
from tests.toys import (
    CATALOG,
    CATALOGS,
    CORE,
    LARGE,
    SR,
    SURFACE,
    TASKS,
    Following,
    Scripted,
    changed,
    complete_run,
    identities_of,
    make_task,
    run_header,
    toy_protocol,
)

PROTOCOL = toy_protocol()
_, PROGRESSIVE, AWARE = SR


# --- what can be seen of a protocol -----------------------------------------------------------------------------------


def grid(protocol: Protocol) -> Any:
    """The episodes that are run."""
    return make_plan(protocol, SURFACE).units


def exposed(protocol: Protocol) -> Any:
    """What the conditions expose while an agent asks and calls again and again, each call telling something new."""
    orders = {number: CATALOG.route_ids[number:] for number in range(1, 12)}
    seen = []
    for name in SR:
        condition = make_condition(name, Following(then=orders), CATALOG, protocol.conditions)
        exposures = [condition.open("Blue lamp"), condition.ask(), condition.ask()]
        for number in range(10):
            found = Observation("ran", {f"tag_{number:02d}_id": f"t-{number}"})
            exposures.append(condition.observe(Call(f"misc.look_{number:02d}", {}), found))
        seen.append([(item.routes, item.cause, item.can_ask, item.can_turn) for item in exposures])
    return seen


def turns(protocol: Protocol) -> Any:
    """How often an agent is asked that calls without end."""
    spec, agent = parse("random"), parse("reference")
    runner = Runner(
        protocol, SURFACE, CATALOGS, retriever=spec, agent=agent,
        agent_factory=lambda _: Scripted([Action("call", Call(CORE[0], {"order_name": str(n)})) for n in range(99)]),
    )  # fmt: skip
    record = runner.run(Unit(TASKS[0].prompt.id, LARGE, "FULL"))
    return sum(isinstance(event, ModelTurn) for event in record.events)


def problems(protocol: Protocol) -> Any:
    """What is wrong with a surface: one task in a cell, one in a cell of its own, one of seven steps."""
    find = TASKS[0].key.steps[0].model_dump()
    route = {"route": "misc.look_00", "role": "latent"}
    heavy = make_task(9, [{**find, **(route if n else {}), "id": f"f{n}", "outputs": {}} for n in range(7)])
    strata = {TASKS[0].prompt.id: PROTOCOL.strata[0], TASKS[1].prompt.id: "nowhere", heavy.prompt.id: "nowhere"}
    return check_surface(Surface("development", (TASKS[0], TASKS[1], heavy), strata), CATALOG, protocol)


def verdict(protocol: Protocol) -> Any:
    """Which criteria hold on counts between two neighbours of every threshold."""
    zero = dict.fromkeys((item.name for item in fields(EpisodeCounts)), 0)
    called = {**zero, "episodes": 1000, "executed": 1000, "executed_in_policy": 995, "unauthorised_destructive": 0}
    aware = EpisodeCounts(
        **{**called, "passed": 875, "recall_hits": 975, "recall_events": 1000, "unauthorised_destructive": 1}
    )
    rows = (
        EpisodeRow("t", 12, AWARE, aware),
        EpisodeRow("t", 12, PROGRESSIVE, EpisodeCounts(**{**called, "passed": 900})),
    )
    run = complete_run(Plan(("t",), (12,), (AWARE, PROGRESSIVE)), rows, {"t": "s/en"})
    return [item.passed for item in Criteria(run, protocol, Statistics(run.cells, protocol.statistics)).all()]


CELLS = {f"t{n}": f"stratum_{n % 2}/{'en' if n % 4 < 2 else 'ko'}" for n in range(16)}


def draws(protocol: Protocol) -> Any:
    """The counts matrix."""
    return counts_sha256(locked_counts(CELLS, protocol.statistics)[1])


def intervals(protocol: Protocol) -> Any:
    """The intervals of a rate."""
    zero = dict.fromkeys((item.name for item in fields(EpisodeCounts)), 0)
    rows = [
        EpisodeRow(task, 12, AWARE, EpisodeCounts(**{**zero, "episodes": 9, "passed": n % 9}))
        for n, task in enumerate(CELLS)
    ]
    return Statistics(CELLS, protocol.statistics).of_measure(rows, BY_NAME["task_pass"])


def stamped(protocol: Protocol) -> Any:
    """The stamp of one and the same run."""
    usual = {"retriever": str(retrievers.resolve(PROTOCOL.retriever)), "agent": str(agents.resolve(PROTOCOL.agent))}
    plan = make_plan(PROTOCOL, SURFACE)
    header = run_header(PROTOCOL, SURFACE, plan, changed(identities_of(SURFACE, CATALOGS), **usual))
    return stamp(protocol, SURFACE, plan, header)


def named(protocol: Protocol) -> Any:
    """What a lock holds of the protocol in plain words: the only effect of prose."""
    return flatten(protocol.model_dump(mode="json"))


def kept(protocol: Protocol) -> Any:
    """Where the confirmatory result is kept."""
    return protocol.results


# --- every field by itself --------------------------------------------------------------------------------------------

SEEN: Mapping[str, Callable[[Protocol], Any]] = {
    "name": kept,
    "confirmatory": stamped,
    "question": named,
    "catalogs": grid,
    "tasks_per_cell": problems,
    "strata": problems,
    "languages": problems,
    "conditions.names": grid,
    "conditions.top_k": exposed,
    "conditions.progressive_stages": exposed,
    "conditions.refresh_budget": exposed,
    "episode.max_model_turns": turns,
    "episode.max_steps_and_failures": problems,
    "gate.max_pass_loss_percentage_points": verdict,
    "gate.min_recall_percent": verdict,
    "gate.max_unauthorised_destructive": verdict,
    "gate.min_integrity_percent": verdict,
    "statistics.iterations": draws,
    "statistics.seed": draws,
    "statistics.level": intervals,
    "statistics.stratify_by": draws,
    "retriever": stamped,
    "agent": stamped,
    "deviations": named,
}
# Fields of which a file of this program and surface can hold one value alone.
FIXED = {
    "schema_version": (2, "schema_version: Input should be 1"),
    "surface": ("frozen", "is the protocol of the frozen"),
}
OTHER_WORDS = {"retriever": "bm25", "agent": "reference(probe=false)", "statistics.stratify_by": "stratum_language"}


def paths(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every field of a model and of the models in it, by its dotted name."""
    for name, field in model.model_fields.items():
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        inner = next((kind for kind in kinds if issubclass(kind, BaseModel)), None)
        yield from paths(inner, f"{before}{name}.") if inner else [f"{before}{name}"]


def with_value(path: str, value: Any) -> Protocol:
    """The protocol with one other value, read as a file is."""
    document = PROTOCOL.model_dump(mode="json")
    *parents, last = path.split(".")
    at = document
    for key in parents:
        at = at[key]
    at[last] = value
    return Protocol.model_validate(document)


def others(path: str) -> list[Any]:
    """Values near to that of a field: a number by one, a list without each of its items in turn, another word."""
    value: Any = PROTOCOL
    for key in path.split("."):
        value = getattr(value, key)
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value - 1] if path == "gate.min_integrity_percent" else [value + 1]
    if isinstance(value, float):
        return [value - 0.05]
    if isinstance(value, tuple):
        return [[item for item in value if item != left_out] for left_out in value]
    return [OTHER_WORDS.get(path, f"{value}x")]


@pytest.mark.parametrize("path", sorted(set(paths(Protocol)) - set(FIXED)))
def test_a_field_changed_alone_changes_what_is_seen_and_the_fingerprint(path: str) -> None:
    look = SEEN[path]
    before = look(PROTOCOL)
    for value in others(path):
        other = with_value(path, value)
        assert look(other) != before, f"{path}={value} has no effect"
        assert other.fingerprint != PROTOCOL.fingerprint


def test_a_field_that_is_always_the_same_is_refused_with_another_value(tmp_path: Path) -> None:
    for path, (value, message) in FIXED.items():
        document = {**PROTOCOL.model_dump(mode="json"), path: value}
        (tmp_path / FILES["development"]).write_bytes(canonical_json(document))
        with pytest.raises(InvalidRunError, match=rf"development-v2\.json: {message}"):
            load_protocol("development", tmp_path)


@pytest.mark.parametrize("path", ["strata", "languages"])
def test_a_surface_with_a_cell_that_its_protocol_lacks_is_not_read(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in others(path):
        other = with_value(path, value)
        monkeypatch.setattr(loader, "load_protocol", lambda _, other=other: other)
        with pytest.raises(loader.SurfaceError, match=r"unknown (stratum|language)"):
            loader.load_surface.__wrapped__("development")
