"""Hypothesis strategies for the instrument's types: contracts, calls, observations, states, and hostile spellings."""

from __future__ import annotations

import os
import string
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from schemarouter.catalog import Capability, OutputField
from schemarouter.state import MARKER, Call, ExecutionState, Observation
from schemarouter.state.leakage import FORBIDDEN

# `make quick` lowers this.
_MAX_EXAMPLES = int(os.environ.get("SCHEMAROUTER_TEST_EXAMPLES", "1000"))


def laws(examples: int, *unchecked: HealthCheck) -> settings:
    """Settings of a law. No deadline and no database: a law depends neither on a clock nor on an earlier run."""
    return settings(
        deadline=None, database=None, max_examples=min(examples, _MAX_EXAMPLES), suppress_health_check=unchecked
    )


LAWS = laws(80)

_LOWER = string.ascii_lowercase
_TAIL = _LOWER + string.digits + "_"

names = st.builds(str.__add__, st.sampled_from(_LOWER), st.text(_TAIL, max_size=12))
# A small pool makes observations of different routes meet in the same fields.
field_names = (
    st.sampled_from(["invoice_id", "lease_id", "mass", "total", "revision", "note", "valid_until", "status", "error"])
    | names
)
semantic_ids = st.sampled_from(
    ["invoice.id", "lease.identifier", "load.mass", "bill.total", "bill.currency"]
) | st.builds("{}.{}".format, names, names)
units = st.sampled_from(["kg", "g", "°C", "m/s", "kW·h", "Ω", "%", "EUR"])
words = st.text(_LOWER + string.digits, min_size=1, max_size=8)
qualifiers = st.dictionaries(
    st.sampled_from(["basis", "currency", "site"]) | words.map("q{}".format), words, max_size=3
)
identifiers = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,20}", fullmatch=True)
free_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | free_text
    | identifiers
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(free_text, inner, max_size=3), max_leaves=6
)
queries = (
    st.sampled_from(["Wie schwer ist Gerät T-17?", "설비 T-17의 load cell 값을 확인해 줘", "荷重を教えてください", ""])
    | free_text
).filter(lambda text: MARKER not in text)
error_texts = (
    st.builds("{}: {}".format, names, free_text) | names.map(" {} ".format) | free_text | st.none() | st.integers()
)


@st.composite
def output_fields(draw: st.DrawFn, name: str) -> OutputField:
    """A registered output of that name."""
    dimension = draw(st.none() | st.sampled_from(["mass", "length", "temperature"]))
    return OutputField(
        name=name,
        type=draw(st.sampled_from(["string", "integer", "number", "boolean", "array", "object"])),
        semantic_id=draw(st.none() | semantic_ids),
        dimension=dimension,
        unit=draw(st.none() | units) if dimension else None,
        qualifiers=draw(qualifiers),
        identifier=draw(st.booleans()),
    )


@st.composite
def capabilities(draw: st.DrawFn) -> Capability:
    """A capability with up to five outputs and no parameters."""
    fields = draw(st.lists(field_names, max_size=5, unique=True))
    return Capability(
        provider=draw(st.sampled_from(["billing", "fleet", "lab"])),
        operation=draw(names),
        description=draw(free_text),
        effect=draw(st.sampled_from(["read", "write", "destructive"])),
        outputs=tuple(draw(output_fields(name)) for name in fields),
    )


@st.composite
def observations(draw: st.DrawFn, capability: Capability | None, *, failed: bool | None = None) -> Observation:
    """What a route could answer: some registered fields, some others, and the error of a failed turn."""
    fails = (capability is None or draw(st.booleans())) if failed is None else failed
    known = [] if capability is None else sorted(capability.outputs_by_name)
    chosen = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
    payload: dict[str, Any] = draw(st.dictionaries(field_names | free_text, json_values, max_size=3))
    for name in chosen:
        often = capability is not None and capability.outputs_by_name[name].is_identifier and draw(st.booleans())
        payload[name] = draw(identifiers | st.integers(0)) if often else draw(json_values)
    if not fails:
        return Observation("ran", payload)
    outcome: Literal["error", "blocked"] = "error" if draw(st.booleans()) else "blocked"
    return Observation(outcome, payload | {"status": outcome, "error": draw(error_texts)})


@dataclass(frozen=True, slots=True)
class Turn:
    """One call and what came of it."""

    call: Call
    observation: Observation
    capability: Capability | None
    incomplete: bool

    def apply(self, state: ExecutionState) -> ExecutionState:
        """The state after this turn."""
        return state.observe(self.call, self.observation, self.capability, incomplete=self.incomplete)


@st.composite
def calls(draw: st.DrawFn, route_id: str) -> Call:
    """A call of that route with any arguments."""
    return Call(route_id, draw(st.dictionaries(names, json_values, max_size=2)))


@st.composite
def turns(draw: st.DrawFn, *, failed: bool | None = None) -> Turn:
    """A turn: of a registered route, or (failed, then) of one that is not."""
    registered = failed is False or draw(st.integers(0, 4)) > 0
    capability = draw(capabilities()) if registered else None
    route_id = capability.route_id if capability else draw(free_text)
    observation = draw(observations(capability, failed=failed))
    return Turn(draw(calls(route_id)), observation, capability, draw(st.booleans()))


@st.composite
def states(draw: st.DrawFn, *, max_turns: int = 4) -> ExecutionState:
    """A state that an episode could reach."""
    state = ExecutionState.start(draw(queries))
    for turn in draw(st.lists(turns(), max_size=max_turns)):
        state = turn.apply(state)
    return state


def _compatible(letter: str, form: int) -> str:
    if not ("a" <= letter.lower() <= "z"):
        return letter
    position = ord(letter.lower()) - ord("a")
    return (letter, letter.upper(), chr(0xFF41 + position), chr(0x1D41A + position), chr(0x24D0 + position))[form]


@st.composite
def forbidden_spellings(draw: st.DrawFn, name: str | None = None) -> str:
    """Some spelling of a forbidden name: case, separators, plurals, compatibility forms, invisible characters."""
    chosen = name if name is not None else draw(st.sampled_from(sorted(FORBIDDEN)))
    words = [word + draw(st.sampled_from(["", "s", "S"])) for word in chosen.split("_")]
    separator = draw(st.sampled_from(["_", "-", " ", "", ".", "/", "::", "\u200b", "\u00a0", "\u2060", "__", "\u3164"]))
    forms = draw(st.lists(st.integers(0, 4), min_size=1, max_size=7))
    letters = [_compatible(letter, forms[at % len(forms)]) for at, letter in enumerate(separator.join(words))]
    letters.insert(
        draw(st.integers(0, len(letters))), draw(st.sampled_from(["", "\u200b", "\ufeff", "\u00ad", "\u0301"]))
    )
    return "".join(letters)


@st.composite
def buried(draw: st.DrawFn, spelling: str) -> Any:
    """A value that holds the name as a key, or as the key of an atom in a list, at some depth."""
    value: Any = draw(
        st.sampled_from([{spelling: 1}, [f"{spelling}=1"], (f"{spelling}\uff1dx",), {"a": {spelling: None}}])
    )
    for wrapper in draw(st.lists(st.sampled_from(["list", "tuple", "dict"]), max_size=5)):
        value = {"list": [0, value], "tuple": (value,), "dict": {"inner": value}}[wrapper]
    return value
