"""The registered agents. A new one is a file with DECLARATION and build, and one line here."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from schemarouter.agents.base import Agent, AgentDeclaration, Guide, Order
from schemarouter.retrieval.spec import Spec, parse, registered_module

# The option by which an agent that draws at random is seeded.
SEED = "seed"
AGENTS: dict[str, str] = {
    "fallible": "schemarouter.agents.fallible",
    "reference": "schemarouter.agents.reference",
}


def _module(name: str) -> ModuleType:
    return registered_module("agent", name, AGENTS)


def declaration(name: str) -> AgentDeclaration:
    """Return what an agent takes and declares; a plain `Declaration` claims nothing. Raises SpecError for an unknown name."""
    found = _module(name).DECLARATION
    if isinstance(found, AgentDeclaration):
        return found
    return AgentDeclaration(found.name, found.summary, found.options, found.nested_min, found.nested_max)


def resolve(spec: Spec | str) -> Spec:
    """Return the full spec, defaults written out: the identity of an agent. Raises SpecError for a spec that is wrong."""
    given = parse(spec) if isinstance(spec, str) else spec
    return declaration(given.name).resolve(given, given.nested)


def order_of(spec: Spec | str) -> Order:
    """Which steps the agent of a full spec takes to be next: ``written`` for one that keeps to the order of the key."""
    given = parse(spec) if isinstance(spec, str) else spec
    return "written" if given.arguments.get("order") == "written" else "ready"


def takes_seed(spec: Spec | str) -> bool:
    """Whether an agent takes a seed, so that its repeats differ. Raises SpecError for a spec that is wrong."""
    return SEED in declaration(resolve(spec).name).options


def seeded(spec: Spec, repeat: int) -> Spec:
    """Return the spec for a repeat, counted from 1: the seed of the first, and one more for each further repeat."""
    if repeat == 1 or SEED not in spec.arguments:
        return spec
    seed = int(str(spec.arguments[SEED])) + repeat - 1
    return Spec(spec.name, spec.nested, {**spec.arguments, SEED: str(seed)})


def prepared(spec: Spec | str) -> Callable[[Guide], Agent]:
    """Prepare to build an agent for every episode.

    Args:
        spec: The agent's spec.

    Returns:
        A function from the guide of an episode to its agent, which gets the guide only where it declares `knows_plan`.

    Raises:
        SpecError: For a spec that is wrong.
    """
    full = resolve(spec)
    module = _module(full.name)
    declared = declaration(full.name)
    values = declared.values(full)
    return lambda guide: module.build(guide if declared.knows_plan else None, {**values})
