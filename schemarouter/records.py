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
# Why tools are shown: the episode opened, a ranking was widened, or the state was ranked again.
Cause = Literal["open", "widen", "refresh"]
_CONFIG = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Exposed:
    """Tools were shown.

    Attributes:
        turn: Model turn, from 1; 0 where the episode opens.
        cause: Why they were shown.
        routes: Ids of the tools, in the order in which the agent sees them.
        ranking: Ids of the ranking they came from, best first; empty for FULL and ORACLE.
        can_ask: Whether asking for more tools can still change them.
        can_turn: Whether another tool turn can still change them.
    """

    turn: StrictInt
    cause: Cause
    routes: tuple[str, ...]
    ranking: tuple[str, ...]
    can_ask: StrictBool
    can_turn: StrictBool
    type: Literal["exposed"] = "exposed"


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """The agent was asked for its next action.

    Attributes:
        turn: Model turn, from 1.
        input_tokens: Tokens of the whole prompt.
        schema_tokens: Those of them that are tool schemas.
    """

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
    """The policy allowed or refused a call, from these facts (`schemarouter.policy.Facts`), before anything ran."""

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
    """What a call returned.

    Attributes:
        turn: Model turn, from 1.
        outcome: ``ran`` or ``error`` from an execution, ``blocked`` from the policy.
        payload: The observed fields; those of a failed turn are ``status`` and ``error``.
        incomplete: Whether the task is incomplete after the turn.
    """

    turn: StrictInt
    outcome: Outcome
    payload: Mapping[str, Any]
    incomplete: StrictBool
    type: Literal["observed"] = "observed"


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The execution state observed the turn.

    Attributes:
        turn: Model turn, from 1.
        sha256: Hash of the state's canonical bytes.
        omitted: Counts of what of the turn stayed outside the state, by kind.
    """

    turn: StrictInt
    sha256: str
    omitted: Mapping[str, StrictInt]
    type: Literal["state"] = "state"


Reason = Literal["completed", "stalled", "turn_limit", "agent_stopped", "time_limit", "exception", "infrastructure"]
# Why an episode can have ended; an infrastructure failure is no outcome.
OUTCOMES: tuple[str, ...] = tuple(reason for reason in get_args(Reason) if reason != "infrastructure")


@dataclass(frozen=True, slots=True)
class Ended:
    """The episode ended.

    Attributes:
        turn: Model turn, from 1.
        reason: Why; ``infrastructure`` is an infrastructure failure, which is no outcome.
        detail: More about it, for a reader.
        steps_completed: Ids of the plan's steps completed by then, in order.
    """

    turn: StrictInt
    reason: Reason
    detail: str
    steps_completed: tuple[str, ...]
    type: Literal["ended"] = "ended"


Event = Annotated[
    Exposed | ModelTurn | Asked | Called | Decided | Observed | StateChanged | Ended, Field(discriminator="type")
]


@pydantic_dataclass(frozen=True, slots=True, config=_CONFIG)
class EpisodeRecord:
    """One attempt at one episode: every event of it, in order.

    Attributes:
        schema_version: Version of the record's format.
        task: Id of the task.
        catalog: Size of the catalog.
        condition: Name of the condition.
        attempt: Number of the attempt, from 1; a further one follows an infrastructure failure.
        events: What happened, in order; the last is `Ended`.
        repeat: Number of the repeat, from 1, where an agent that takes a seed runs more than once.

    Example:
        >>> EpisodeRecord(SCHEMA_VERSION, "dev-en-01", 100, "FULL", attempt=1, repeat=2).episode_id
        'dev-en-01/100/FULL#2'
    """

    schema_version: StrictInt
    task: str
    catalog: StrictInt
    condition: str
    attempt: StrictInt
    events: tuple[Event, ...] = field(default=())
    repeat: Annotated[StrictInt, Field(ge=1)] = 1

    @property
    def episode_id(self) -> str:
        """The episode's name in the grid: see the function `episode_id`."""
        return episode_id(self.task, self.catalog, self.condition, self.repeat)

    @property
    def infrastructure(self) -> bool:
        """Whether an infrastructure failure ended the attempt, which is then no outcome."""
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
# orjson sorts the keys of dicts but not the fields of dataclasses: their sorted names, and what fetches the values in that order.
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
    """Each item as a dict whose keys are sorted."""
    return [dict(zip(names, values(item), strict=False)) for item in items for names, values in (_FIELDS[type(item)],)]


def encode(record: EpisodeRecord) -> bytes:
    """Encode a record as canonical JSON, without a line end."""
    whole = _plain((record,))[0]
    whole["events"] = _plain(record.events)
    return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)


def encode_event(event: Event) -> bytes:
    """Encode one event as canonical JSON."""
    return orjson.dumps([type(event).__name__, *_plain((event,))], option=orjson.OPT_SORT_KEYS)


class RecordEnvelope(NamedTuple):
    """The fields of a record, with its events as undecoded bytes."""

    task: str
    catalog: int
    condition: str
    repeat: int
    attempt: int
    events: bytes


def split_envelope(data: bytes) -> RecordEnvelope | None:
    """Split the canonical bytes of a record without decoding its events; None for bytes of any other shape.

    The other fields have one canonical spelling, so two records with equal events and equal fields are equal in every byte.
    """
    match = _SHAPE.fullmatch(data)
    if match is None:
        return None
    attempt, catalog, condition, events, repeat, task = match.groups()
    return RecordEnvelope(task.decode(), int(catalog), condition.decode(), int(repeat), int(attempt), events)


def decode(data: bytes | Mapping[str, Any], location: str) -> EpisodeRecord:
    """Read a record.

    Args:
        data: Its JSON, as bytes or as parsed values.
        location: The location that an error names.

    Returns:
        The record.

    Raises:
        InvalidRunError: For a newer schema_version, and for anything that is no record.
    """
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
