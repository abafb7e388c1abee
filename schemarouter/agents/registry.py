"""Which agents there are. A new one is a file with DECLARATION and build, and one line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from schemarouter.agents.base import Agent, Guide
from schemarouter.errors import unknown
from schemarouter.retrieval.spec import Declaration, Spec, SpecError, parse

# The option by which an agent that is not deterministic is seeded.
SEED = "seed"
AGENTS: dict[str, str] = {
    "fallible": "schemarouter.agents.fallible",
    "reference": "schemarouter.agents.reference",
}


def _module(name: str) -> ModuleType:
    if name not in AGENTS:
        raise SpecError(unknown("agent", name, AGENTS))
    return import_module(AGENTS[name])


def declaration(name: str) -> Declaration:
    """What an agent takes. Raises SpecError for an unknown name."""
    found: Declaration = _module(name).DECLARATION
    return found


def resolve(spec: Spec | str) -> Spec:
    """The full spec, defaults written out: the identity of an agent. Raises SpecError."""
    given = parse(spec) if isinstance(spec, str) else spec
    return declaration(given.name).resolve(given, given.nested)


def takes_seed(spec: Spec | str) -> bool:
    """Whether an agent is not deterministic and says so by taking a seed. Raises SpecError."""
    return SEED in declaration(resolve(spec).name).options


def seeded(spec: Spec, repeat: int) -> Spec:
    """The full spec of an agent for one of its repeats, counted from 1: each with a seed of its own, one after the other."""
    if repeat == 1 or SEED not in spec.arguments:
        return spec
    seed = int(str(spec.arguments[SEED])) + repeat - 1
    return Spec(spec.name, spec.nested, {**spec.arguments, SEED: str(seed)})


def prepared(spec: Spec | str) -> Callable[[Guide], Agent]:
    """What builds an agent, one for each episode: its guide is handed to it alone. Raises SpecError."""
    full = resolve(spec)
    module = _module(full.name)
    values = declaration(full.name).values(full)
    return lambda guide: module.build(guide, {**values})
