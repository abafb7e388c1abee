"""Which agents there are. A new one is a file with DECLARATION and build, and one line here."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from schemarouter.agents.base import Agent, Guide
from schemarouter.errors import unknown
from schemarouter.retrieval.spec import Declaration, Spec, SpecError, parse

AGENTS: dict[str, str] = {"reference": "schemarouter.agents.reference"}


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


def build_agent(spec: Spec | str, guide: Guide) -> Agent:
    """Build an agent for one episode. The guide is handed to it alone."""
    full = resolve(spec)
    agent: Agent = _module(full.name).build(guide, declaration(full.name).values(full))
    return agent
