"""A run is stamped exploratory unless it is the whole locked protocol; the stamp follows from the run itself."""

from __future__ import annotations

from typing import Any

import pytest

from conditions.running.plan import make_plan
from conditions.storage.run_directory import Identities, Provenance, RunHeader, RunLimits
from gates.exploratory import check_stamp, stamp
from preregistration.protocol import Protocol
from schemarouter.agents import registry as agents
from schemarouter.errors import InvalidRunError
from schemarouter.retrieval import registry as retrievers
from tests.toys import CATALOGS, PROVENANCE, SURFACE, changed, identities_of, run_header, toy_protocol

PROTOCOL: Protocol = toy_protocol().model_copy(update={"confirmatory": True})
USUAL = changed(
    identities_of(SURFACE, CATALOGS),
    retriever=str(retrievers.resolve(PROTOCOL.retriever)),
    agent=str(agents.resolve(PROTOCOL.agent)),
)
RUN = changed(run_header(PROTOCOL, SURFACE, make_plan(PROTOCOL, SURFACE), USUAL), provenance=PROVENANCE)


def header(**parts: Any) -> RunHeader:
    """The header of a run with these `parts`; those that are no part are identities or provenance."""
    own = {name: value for name, value in parts.items() if name in RunHeader.model_fields}
    identities = {name: value for name, value in parts.items() if name in Identities.model_fields}
    provenance = {name: value for name, value in parts.items() if name in Provenance.model_fields}
    return changed(RUN, identities=changed(USUAL, **identities), provenance=changed(PROVENANCE, **provenance), **own)


def test_the_whole_locked_protocol_alone_carries_no_stamp() -> None:
    assert stamp(PROTOCOL, SURFACE, make_plan(PROTOCOL, SURFACE), header()) == ""


def test_a_limit_that_cuts_nothing_off_makes_no_part() -> None:
    whole = make_plan(PROTOCOL, SURFACE)
    assert stamp(PROTOCOL, SURFACE, make_plan(PROTOCOL, SURFACE, limit=len(whole.units)), header()) == ""


@pytest.mark.parametrize(
    ("protocol", "part", "parts", "asked", "reason"),
    [
        ({"confirmatory": False}, {}, {}, False, "development surface"),
        ({}, {"limit": 3}, {}, False, "part of the grid"),
        ({}, {"conditions": ["FULL"]}, {}, False, "part of the grid"),
        ({}, {}, {"retriever": "random(seed=1)"}, False, "another retriever or agent"),
        ({}, {}, {"agent": "reference(probe=false)"}, False, "another retriever or agent"),
        ({}, {}, {"catalog_view": "names-only"}, False, "another view of the catalogs"),
        ({}, {"repeats": 2}, {}, False, "repeats"),
        ({}, {}, {"limits": RunLimits(episode_seconds=2.0)}, False, "a time limit"),
        ({}, {}, {"resumed": (PROVENANCE,)}, False, "resumed under other code"),
        ({}, {}, {}, True, "asked for"),
    ],
)
def test_every_way_to_differ_is_stamped_with_its_reason(
    protocol: dict[str, Any], part: dict[str, Any], parts: dict[str, Any], asked: bool, reason: str
) -> None:
    rules = PROTOCOL.model_copy(update=protocol)
    plan = make_plan(rules, SURFACE, **part)
    assert stamp(rules, SURFACE, plan, header(**parts), asked=asked) == f"EXPLORATORY ({reason})"


@pytest.mark.parametrize("given", ["", "EXPLORATORY", "EXPLORATORY (asked for)"])
def test_a_stamp_that_does_not_follow_from_the_run_is_refused(given: str) -> None:
    plan = make_plan(PROTOCOL, SURFACE, limit=3)
    with pytest.raises(InvalidRunError, match=r"part of the grid"):
        check_stamp(header(stamp=given), PROTOCOL, SURFACE, plan)


@pytest.mark.parametrize("given", ["EXPLORATORY (part of the grid)", "EXPLORATORY (part of the grid, asked for)"])
def test_the_stamp_of_the_run_holds_asked_for_or_not(given: str) -> None:
    run = header(stamp=given)
    check_stamp(run, PROTOCOL, SURFACE, make_plan(PROTOCOL, SURFACE, limit=3))


UNCOMMITTED = [
    {"commit": "c0ffee", "dirty": True},
    {"commit": None, "dirty": None},
    {"commit": None, "dirty": False},
    {"commit": "c0ffee", "dirty": None},
]


@pytest.mark.parametrize("provenance", UNCOMMITTED, ids=str)
def test_code_that_is_of_no_known_commit_cannot_confirm(provenance: dict[str, Any]) -> None:
    plan = make_plan(PROTOCOL, SURFACE)
    assert stamp(PROTOCOL, SURFACE, plan, header(**provenance)) == "EXPLORATORY (uncommitted code)"
    with pytest.raises(InvalidRunError, match="uncommitted code"):
        check_stamp(header(stamp="", **provenance), PROTOCOL, SURFACE, plan)


@pytest.mark.parametrize("provenance", UNCOMMITTED, ids=str)
def test_a_development_run_is_stamped_alike_whatever_its_code(provenance: dict[str, Any]) -> None:
    rules = PROTOCOL.model_copy(update={"confirmatory": False})
    assert stamp(rules, SURFACE, make_plan(rules, SURFACE), header(**provenance)) == "EXPLORATORY (development surface)"
