"""The header of a run: composed once before its first episode, and again where the run is resumed under other code."""

from __future__ import annotations

from collections.abc import Callable

from conditions.running.plan import Plan
from conditions.running.runner import Setup
from conditions.storage.run_directory import RUN_SCHEMA_VERSION, Provenance, RunHeader, RunLimits
from gates.exploratory import stamp
from gates.identities import identities
from preregistration.protocol import load_protocol
from surface.loader import load_catalogs, load_surface


def new_header(
    setup: Setup, plan: Plan, provenance: Provenance, *, episode_seconds: float | None = None, exploratory: bool = False
) -> RunHeader:
    """The header of a new run; `exploratory` is whether the user called it so."""
    protocol, surface = load_protocol(setup.surface), load_surface(setup.surface)
    catalogs = load_catalogs(protocol.catalogs)
    header = RunHeader(
        schema_version=RUN_SCHEMA_VERSION,
        surface=setup.surface,
        stamp="",
        identities=identities(protocol, surface, catalogs, plan.tasks, setup.retriever, setup.agent, view=setup.view),
        plan=plan.document(),
        provenance=provenance,
        limits=RunLimits(episode_seconds=episode_seconds),
        resumed=(),
    )
    return _stamped(header, plan, exploratory=exploratory)


def resumed_header(now: RunHeader, plan: Plan) -> Callable[[RunHeader], RunHeader]:
    """A function from the stored header of an exploratory run to the one it is resumed with, under the code of `now`."""

    def resumed(stored: RunHeader) -> RunHeader:
        latest = (stored.provenance, *stored.resumed)[-1]
        same = latest.model_copy(update={"argv": now.provenance.argv}) == now.provenance
        history = stored.resumed if same else (*stored.resumed, now.provenance)
        return _stamped(stored.model_copy(update={"resumed": history}), plan, exploratory=True)

    return resumed


def _stamped(header: RunHeader, plan: Plan, *, exploratory: bool) -> RunHeader:
    protocol, surface = load_protocol(header.surface), load_surface(header.surface)
    return header.model_copy(update={"stamp": stamp(protocol, surface, plan, header, asked=exploratory)})
