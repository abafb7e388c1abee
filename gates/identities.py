"""The identities of a run, composed of the fingerprints of each package, and the fingerprints that a lock holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from conditions.running.plan import Plan, plan_of
from conditions.storage.run_directory import Identities, RunHeader
from gates.behaviour_hashes import agent_behaviour, retriever_behaviour
from gates.bootstrap import counts_sha256, locked_counts
from preregistration.lock import flatten, scoring_refusal
from preregistration.protocol import FILES, Protocol, load_protocol
from schemarouter import state
from schemarouter.agents import registry as agents
from schemarouter.canonical import fingerprint
from schemarouter.catalog import Catalog, contract_json
from schemarouter.catalog.views import CatalogView
from schemarouter.errors import InvalidRunError, unknown
from schemarouter.retrieval import registry as retrievers
from schemarouter.retrieval.spec import SpecError
from schemarouter.tokens import TOKENIZER
from surface.loader import FOLDERS, Surface, load_catalogs, load_surface


@dataclass(frozen=True)
class ReferenceData:
    """Protocol, tasks and catalogs of this checkout, and the identities that a run's header must have with them."""

    protocol: Protocol
    surface: Surface
    catalogs: Mapping[int, Catalog]
    identities: Callable[[RunHeader], Identities]


def identities(
    protocol: Protocol,
    surface: Surface,
    catalogs: Mapping[int, Catalog],
    tasks: tuple[str, ...],
    retriever: str,
    agent: str,
    view: CatalogView = "full",
) -> Identities:
    """Everything that a result over these tasks rests on, in this checkout. Raises SpecError for an unknown spec."""
    cells = {task: surface.cell(task) for task in tasks}
    return Identities(
        agent=str(agents.resolve(agent)),
        catalog_view=view,
        catalogs={str(size): catalog.fingerprint for size, catalog in sorted(catalogs.items())},
        protocol=protocol.fingerprint,
        retriever=str(retrievers.resolve(retriever)),
        retriever_data=retrievers.data_fingerprint(retriever),
        state_contract=state.fingerprint(),
        statistics=counts_sha256(locked_counts(cells, protocol.statistics)[1]) if cells else "",
        surface=surface.fingerprint,
        tokenizer=TOKENIZER,
    )


def load_reference(run: RunHeader) -> ReferenceData:
    """What a run is checked against.

    Raises InvalidRunError for a header of an unknown surface, of one that must not be scored, or of repeats that are copies.
    """
    if run.surface not in FOLDERS:
        raise InvalidRunError(f"run.json: {unknown('surface', run.surface, FOLDERS)}")
    plan = plan_of(run.plan, "run.json")
    reason = scoring_refusal(run.surface, plan.conditions)
    if reason:
        raise InvalidRunError(reason)
    protocol, surface = load_protocol(run.surface), load_surface(run.surface)
    catalogs = load_catalogs(protocol.catalogs)
    _refuse_copies(run, plan)

    def identities_of_run(header: RunHeader) -> Identities:
        named = header.identities
        try:
            return identities(
                protocol, surface, catalogs, header.plan.tasks, named.retriever, named.agent, named.catalog_view
            )
        except SpecError as error:
            raise InvalidRunError(f"run.json: identities name no known retriever or agent: {error}") from None

    return ReferenceData(protocol, surface, catalogs, identities_of_run)


def _refuse_copies(run: RunHeader, plan: Plan) -> None:
    """Raise InvalidRunError for repeats of an agent that takes no seed: each would be the same."""
    agent = run.identities.agent
    try:
        copies = plan.repeats > 1 and not agents.takes_seed(agent)
    except SpecError:
        return  # Refused with the identities.
    if copies:
        raise InvalidRunError(
            f"run.json: the plan has repeats, and {agent} takes no seed: they would be copies of one run."
        )


@cache
def locked_fingerprints(surface: str, *, behaviour: bool = True) -> dict[str, str]:
    """Every fingerprint that a lock of the surface holds, as of this checkout; those of behaviour take some seconds."""
    protocol, tasks = load_protocol(surface), load_surface(surface)
    catalogs = load_catalogs(protocol.catalogs)
    ids = tuple(task.prompt.id for task in tasks.tasks)
    composed = identities(protocol, tasks, catalogs, ids, protocol.retriever, protocol.agent)
    # The view is the run's choice, and the protocol has one only.
    named = flatten(composed.model_dump(mode="json", exclude={"catalog_view"}))
    stated = flatten(protocol.model_dump(mode="json"))
    named |= {f"preregistration/{FILES[surface]}#{name}": value for name, value in stated.items()}
    for task in tasks.tasks:
        cell = tasks.cell(task.prompt.id)
        for part in ("prompt", "key"):
            content = getattr(task, part).model_dump(mode="json")
            named[f"surface/{FOLDERS[surface]}/{cell}.json#{task.prompt.id}.{part}"] = fingerprint(content)
    for item in catalogs[max(catalogs)].capabilities:
        named[f"surface/catalog/{item.provider}.json#{item.operation}"] = fingerprint(
            {**contract_json(item), "tier": item.tier}
        )
    if not behaviour:
        return named
    development = load_surface("development")
    named["retriever_behaviour"] = retriever_behaviour(protocol.retriever, protocol, development, catalogs)
    named["agent_behaviour"] = agent_behaviour(protocol.agent, protocol, development, catalogs)
    return named
