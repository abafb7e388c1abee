"""May this call run? The policy decides from facts alone; facts come from catalog, exposure and authorisations."""

from __future__ import annotations

import ast
import inspect
from itertools import product

import pytest

import schemarouter.policy as module
from schemarouter.policy import Facts, StandardPolicy, facts_of
from schemarouter.state import Call
from tests.toys import CATALOG

CALL = Call("shop.cancel_order", {"order_id": "ord-1"})
FLAGS = (True, False)
EVERY = [
    Facts(registered, exposed, valid, effect, authorised)
    for registered, exposed, valid, authorised in product(FLAGS, repeat=4)
    for effect in ("read", "write", "destructive")
]


@pytest.mark.parametrize("facts", EVERY, ids=str)
def test_a_call_runs_exactly_when_registered_exposed_valid_and_not_destructive_without_authorisation(
    facts: Facts,
) -> None:
    decision = StandardPolicy().decide(CALL, facts)
    sound = facts.registered and facts.exposed and facts.schema_valid
    assert decision.allowed == (sound and (facts.effect != "destructive" or facts.authorised))
    assert bool(decision.error) != decision.allowed


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(False, False, False, "", False), "unregistered_route: shop.cancel_order"),
        (Facts(True, False, False, "destructive", False), "not_exposed: shop.cancel_order"),
        (Facts(True, True, False, "destructive", False), "invalid_arguments: "),
        (Facts(True, True, True, "destructive", False), "not_authorised: shop.cancel_order"),
    ],
)
def test_a_refusal_gives_the_first_reason_that_holds(facts: Facts, reason: str) -> None:
    assert StandardPolicy().decide(CALL, facts).error.startswith(reason)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (CALL, Facts(True, True, True, "destructive", True)),
        (Call("aux.purge", {}), Facts(True, True, True, "destructive", False)),
        (Call("shop.find_order", {"order_name": "x"}), Facts(True, False, True, "read", False)),
        (Call("shop.cancel_order", {}), Facts(True, True, False, "destructive", True)),
        (Call("shop.cancel_order", {"order_id": 3}), Facts(True, True, False, "destructive", True)),
        (Call("shop.cancel_order", {"order_id": "x", "force": True}), Facts(True, True, False, "destructive", True)),
        (Call("ghost.route", {}), Facts(False, False, False, "", False)),
        (Call("shop.Cancel_order", {"order_id": "x"}), Facts(False, False, False, "", False)),
    ],
)
def test_the_facts_of_a_call(call: Call, facts: Facts) -> None:
    assert facts_of(call, CATALOG, ["shop.cancel_order", "aux.purge"], ["shop.cancel_order"]) == facts


def test_an_authorisation_is_for_that_very_route() -> None:
    facts = facts_of(Call("aux.purge", {}), CATALOG, ["aux.purge"], ["aux.purge_all", "aux", "shop.cancel_order"])
    assert not facts.authorised and not StandardPolicy().decide(Call("aux.purge", {}), facts).allowed


def test_policy_never_asks_retrieval() -> None:
    tree = ast.parse(inspect.getsource(module))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if name and ("retrieval" in name or "conditions" in name)]
    assert set(inspect.signature(StandardPolicy.decide).parameters) == {"self", "call", "facts"}
