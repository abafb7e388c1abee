"""The record of an episode: everything that happened, turn by turn, as an append-only list of typed events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, get_args

import orjson
from pydantic import ConfigDict, Field, StrictBool, StrictInt, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from schemarouter.errors import InvalidRunError
from schemarouter.files import explain
from schemarouter.state import Outcome

SCHEMA_VERSION = 1
# Why tools are shown: the episode opened, a ranking was widened, or the state was ranked anew.
Cause = Literal["open", "widen", "refresh"]
_CONFIG = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Exposed:
    """Tools were shown. `ranking` holds the ids of the ranking they came from, best first; FULL and ORACLE have none."""

    turn: StrictInt
    cause: Cause
    routes: tuple[str, ...]
    ranking: tuple[str, ...]
    can_ask: StrictBool
    can_turn: StrictBool
    type: Literal["exposed"] = "exposed"


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """The agent was asked. Tokens of its whole prompt, and those that the tool schemas are of it."""

    turn: StrictInt
    input_tokens: StrictInt
    schema_tokens: StrictInt
    type: Literal["model_turn"] = "model_turn"


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent asked for more tools."""

    turn: StrictInt
    type: Literal["asked"] = "asked"


@dataclass(frozen=True, slots=True)
class Called:
    """The agent called a route."""

    turn: StrictInt
    route: str
    arguments: Mapping[str, Any]
    type: Literal["called"] = "called"


@dataclass(frozen=True, slots=True)
class Decided:
    """The policy decided, before anything ran, from these facts."""

    turn: StrictInt
    registered: StrictBool
    exposed: StrictBool
    schema_valid: StrictBool
    effect: str
    authorised: StrictBool
    allowed: StrictBool
    error: str
    type: Literal["decided"] = "decided"


@dataclass(frozen=True, slots=True)
class Observed:
    """What came back of a call; `ran` and `error` come from an execution, `blocked` from the policy.

    `incomplete` is the completion state after the turn.
    """

    turn: StrictInt
    outcome: Outcome
    payload: Mapping[str, Any]
    incomplete: StrictBool
    type: Literal["observed"] = "observed"


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The state took the turn in: the hash of its canonical bytes, and counts of what was left out of it."""

    turn: StrictInt
    sha256: str
    omitted: Mapping[str, StrictInt]
    type: Literal["state"] = "state"


@dataclass(frozen=True, slots=True)
class Ended:
    """Why the episode ended, and the steps that the environment had completed by then, in order."""

    turn: StrictInt
    reason: Literal["completed", "stalled", "turn_limit", "agent_stopped", "time_limit", "exception", "infrastructure"]
    detail: str
    steps_completed: tuple[str, ...]
    type: Literal["ended"] = "ended"


Event = Annotated[
    Exposed | ModelTurn | Asked | Called | Decided | Observed | StateChanged | Ended, Field(discriminator="type")
]


@pydantic_dataclass(frozen=True, slots=True, config=_CONFIG)
class EpisodeRecord:
    """One attempt at one episode; `repeat` counts from 1 where an agent that is not deterministic runs more than once."""

    schema_version: StrictInt
    task: str
    catalog: StrictInt
    condition: str
    attempt: StrictInt
    events: tuple[Event, ...] = field(default=())
    repeat: Annotated[StrictInt, Field(ge=1)] = 1

    @property
    def episode_id(self) -> str:
        """The name of the episode in the grid."""
        return episode_id(self.task, self.catalog, self.condition, self.repeat)

    @property
    def infrastructure(self) -> bool:
        """Whether the attempt ended for reasons of the machine alone, and is no outcome."""
        return self._ended_by("infrastructure")

    @property
    def out_of_time(self) -> bool:
        """Whether the attempt ended because its time was up."""
        return self._ended_by("time_limit")

    def _ended_by(self, reason: str) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Ended) and self.events[-1].reason == reason


def episode_id(task: str, catalog: int, condition: str, repeat: int = 1) -> str:
    """The name of an episode of the grid: ``task/catalog/condition``, with ``#N`` from the second repeat on."""
    return f"{task}/{catalog}/{condition}" + (f"#{repeat}" if repeat > 1 else "")


_ADAPTER = TypeAdapter(EpisodeRecord)
# orjson sorts the keys of dicts but leaves the fields of dataclasses as they are declared: names in order, and their values.
_FIELDS = {
    kind: (names, attrgetter(*names))
    for kind in (EpisodeRecord, *get_args(get_args(Event)[0]))
    for names in (tuple(sorted(item.name for item in fields(kind))),)
}


_NUMBER, _NAME = rb"([1-9][0-9]{0,17})", rb'"([A-Za-z0-9_.-]+)"'
_SHAPE = re.compile(
    rb'\{"attempt":%b,"catalog":%b,"condition":%b,"events":(\[.*\]),"repeat":%b,"schema_version":%d,"task":%b\}'
    % (_NUMBER, _NUMBER, _NAME, _NUMBER, SCHEMA_VERSION, _NAME),
    re.DOTALL,
)


def _plain(items: Iterable[EpisodeRecord | Event]) -> list[dict[str, Any]]:
    """Each as a dict whose keys are in order."""
    return [dict(zip(names, values(item), strict=False)) for item in items for names, values in (_FIELDS[type(item)],)]


def encode(record: EpisodeRecord) -> bytes:
    """Write a record as canonical JSON, without a line end."""
    whole = _plain((record,))[0]
    whole["events"] = _plain(record.events)
    return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)


def encode_event(event: Event) -> bytes:
    """Write one event as canonical JSON."""
    return orjson.dumps([type(event).__name__, *_plain((event,))], option=orjson.OPT_SORT_KEYS)


class RecordEnvelope(NamedTuple):
    """What a record says besides its events, and the bytes of these."""

    task: str
    catalog: int
    condition: str
    repeat: int
    attempt: int
    events: bytes


def split_envelope(data: bytes) -> RecordEnvelope | None:
    """Take canonical bytes of a record apart without reading its events; None for bytes of any other shape.

    Where the events are those of a record that was read, so is the whole: there is one way only to write the rest.
    """
    found = _SHAPE.fullmatch(data)
    if found is None:
        return None
    attempt, catalog, condition, events, repeat, task = found.groups()
    return RecordEnvelope(task.decode(), int(catalog), condition.decode(), int(repeat), int(attempt), events)


def decode(data: bytes | Mapping[str, Any], location: str) -> EpisodeRecord:
    """Read a record. Raises InvalidRunError naming `location` and everything wrong there; a newer version is refused by name."""
    try:
        raw = orjson.loads(data) if isinstance(data, bytes) else data
        version = raw.get("schema_version") if isinstance(raw, Mapping) else None
        if isinstance(version, int) and not 1 <= version <= SCHEMA_VERSION:
            raise InvalidRunError(
                f"{location}: record of schema_version {version}; this program reads up to {SCHEMA_VERSION}, and none below 1."
            )
        return _ADAPTER.validate_python(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRunError(f"{location}: not JSON ({error}).") from None
    except ValidationError as error:
        raise InvalidRunError(f"{location}: " + "; ".join(explain(error)[:3])) from None
