"""The loop of one episode. It records what happens and counts nothing."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from conditions.base import Condition, Exposure
from conditions.running.engines.timeout import EpisodeTimeLimitError
from schemarouter.agents.base import REQUEST_MORE_TOOLS, SYSTEM_PROMPT, TASK_INCOMPLETE, Action, Agent, AgentView, Turn
from schemarouter.canonical import canonical_json, sha256_hex
from schemarouter.catalog import Catalog
from schemarouter.catalog.tools import tool_of_route
from schemarouter.policy import Policy, facts_of
from schemarouter.records import (
    SCHEMA_VERSION,
    Asked,
    Called,
    Decided,
    Ended,
    EpisodeRecord,
    Event,
    Exposed,
    ModelTurn,
    Observed,
    StateChanged,
)
from schemarouter.state import Call, Observation, omissions
from schemarouter.tokens import Message, TokenCounter, call_text, result_text
from surface.environment import Environment

# Error numbers of infrastructure failures: decided by the kind of error, never by the outcome. A missing file or a refused
# permission is not among them, for those are caused by code.
_INFRASTRUCTURE_ERRNOS = frozenset(
    (
        errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
        errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
        errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT,
    )
)  # fmt: skip

_INFRASTRUCTURE_TYPES = (MemoryError, ConnectionError, TimeoutError, socket.gaierror)
# The same of clients that may not be installed: by class name, with its package where others could have that name too.
_CLIENT_ERRORS = frozenset({
    "ConnectError", "ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout", "APIConnectionError", "APITimeoutError",
    "NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ClientConnectionError", "httpx.NetworkError",
    "httpx.TimeoutException", "httpx.RemoteProtocolError", "requests.ConnectionError", "requests.Timeout",
})  # fmt: skip
# So many errors are looked at: one that wraps another may be wrapped itself, and they can form a circle.
_MAX_WRAPPED = 32


def is_infrastructure(error: BaseException) -> bool:
    """Whether an error is, or wraps, an infrastructure failure: out of memory, or trouble with disk, network or host."""
    errors = [error]
    for current in errors:
        if _struck(current):
            return True
        errors += [item for item in _wrapped(current) if not any(item is known for known in errors)]
        del errors[_MAX_WRAPPED:]
    return False


def _struck(error: BaseException) -> bool:
    """Whether an error itself is an infrastructure failure; its text is never looked at."""
    if isinstance(error, _INFRASTRUCTURE_TYPES) or (
        isinstance(error, OSError) and error.errno in _INFRASTRUCTURE_ERRNOS
    ):
        return True
    kinds = type(error).__mro__
    names = {kind.__name__ for kind in kinds} | {
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in kinds
    }
    return not names.isdisjoint(_CLIENT_ERRORS)


def _wrapped(error: BaseException) -> list[BaseException]:
    """The errors that an error names as its cause: as a traceback shows them, as a reason, in a group, or as arguments."""
    found: list[object] = [error.__cause__ or (None if error.__suppress_context__ else error.__context__)]
    found.append(vars(error).get("reason"))
    found += error.args if isinstance(error, OSError) else ()
    found += error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [item for item in found if isinstance(item, BaseException)]


def plain_text(value: object) -> str:
    """Text that a record can hold, from any value: without lone surrogates, at most 500 characters."""
    text = str.__str__(value) if isinstance(value, str) else type(value).__name__
    return text.encode("utf-8", "replace").decode()[:500]


def describe_error(error: BaseException) -> str:
    """Kind and message of an error, or its kind alone where its message cannot be made."""
    try:
        return plain_text(f"{type(error).__name__}: {error}")
    except (Exception, SystemExit):
        return type(error).__name__


def own_copy(call: Call) -> Call:
    """Copy a call into plain JSON values that nothing else refers to: an agent may change its own call at any time.

    Raises TypeError or CanonicalError for a call that a record cannot hold.
    """
    route = call.route_id
    if type(route) is not str:
        raise TypeError(f"a call names its route by a string, not by {type(route).__name__}")
    return Call(*orjson.loads(canonical_json([route, dict(call.arguments)])))


def _own_observation(observation: Observation) -> Observation:
    """Copy an observation into plain JSON values that nothing else refers to."""
    return Observation(observation.outcome, orjson.loads(canonical_json(dict(observation.payload))))


def unregistered(call: Call) -> Observation:
    """The observation for a call of an unregistered route that a broken policy allowed."""
    return Observation("error", {"status": "error", "error": f"unregistered_route: {call.route_id}"})


def _written_call(route: str, arguments: Mapping[str, Any], turn: int) -> str:
    """The text of a call in the conversation, as the agent wrote it."""
    return call_text(tool_of_route(route), dict(arguments), _call_id(turn))


def turn_messages(call: Call, observation: Observation, turn: int) -> list[Message]:
    """The messages that a tool turn adds to the conversation."""
    return [
        Message("call", _written_call(call.route_id, call.arguments, turn)),
        Message("result", result_text(dict(observation.payload), _call_id(turn))),
    ]


def output_tokens(record: EpisodeRecord, counter: TokenCounter) -> int:
    """Tokens that the agent of an attempt wrote: its calls and its requests for more tools."""
    asked = sum(isinstance(event, Asked) for event in record.events)
    calls = [event for event in record.events if isinstance(event, Called)]
    written = (_written_call(call.route, call.arguments, call.turn) for call in calls)
    return asked * counter.text(REQUEST_MORE_TOOLS) + sum(map(counter.text, written))


def _call_id(turn: int) -> str:
    return f"call{turn:05d}"


@dataclass
class Episode:
    """One episode: everything it needs, and its events so far."""

    task_id: str
    catalog_size: int
    query: str
    authorised: tuple[str, ...]
    catalog: Catalog
    condition: Condition
    agent: Agent
    environment: Environment
    policy: Policy
    counter: TokenCounter
    max_model_turns: int
    attempt: int = 1
    repeat: int = 1
    events: list[Event] = field(default_factory=list)
    _messages: list[Message] = field(default_factory=list)
    _history: list[Turn] = field(default_factory=list)
    _turn: int = 0

    def run(self) -> EpisodeRecord:
        """Run to the end. Any error but an interruption becomes a failed episode with its reason."""
        try:
            reason, detail = self._run()
        except KeyboardInterrupt:
            raise
        except EpisodeTimeLimitError as late:
            reason, detail = "time_limit", str(late)
        except BaseException as error:
            # No episode is dropped: code of agents, retrievers, conditions and environments may raise anything, SystemExit too.
            reason = "infrastructure" if is_infrastructure(error) else "exception"
            detail = describe_error(error)
        steps = tuple(self.environment.progress.complete)
        self.events.append(Ended(self._turn, reason, plain_text(detail), steps))  # type: ignore[arg-type]
        return EpisodeRecord(
            SCHEMA_VERSION,
            self.task_id,
            self.catalog_size,
            self.condition.name,
            self.attempt,
            tuple(self.events),
            self.repeat,
        )

    def _run(self) -> tuple[str, str]:
        self._show(self.condition.open(self.query))
        self._messages.append(Message("user", self.query))
        asked_in_vain = False
        for turn in range(1, self.max_model_turns + 1):
            self._turn = turn
            action = self._model_turn()
            if action.kind == "stop":
                given = plain_text(action.reason)
                return ("stalled" if given == "stalled" else "agent_stopped"), given
            if action.kind == "ask":
                if not self._ask():
                    if asked_in_vain:
                        return "stalled", "asked twice with nothing changed"
                    asked_in_vain = True
                else:
                    asked_in_vain = False
                continue
            asked_in_vain = False
            assert action.call is not None
            self._tool_turn(action.call)
            if not self.environment.progress.incomplete:
                return "completed", ""
        return "turn_limit", f"{self.max_model_turns} model turns"

    def _show(self, exposure: Exposure) -> None:
        ranking = exposure.ranking.ids if exposure.ranking is not None else ()
        self.events.append(
            Exposed(self._turn, exposure.cause, exposure.routes, ranking, exposure.can_ask, exposure.can_turn)
        )

    def _model_turn(self) -> Action:
        exposure = self.condition.exposure
        schema_tokens = self.counter.tools(self.catalog, exposure.routes)
        plain_tokens = self.counter.conversation(SYSTEM_PROMPT, self._messages)
        self.events.append(ModelTurn(self._turn, plain_tokens + schema_tokens, schema_tokens))
        view = AgentView(
            self.query, exposure.routes, exposure.can_ask, exposure.can_turn, tuple(self._history), self.catalog
        )
        return self.agent.act(view)

    def _ask(self) -> bool:
        """Handle a request for more tools; returns whether the tools shown have changed."""
        self.events.append(Asked(self._turn))
        self._messages += [Message("assistant", REQUEST_MORE_TOOLS), Message("user", TASK_INCOMPLETE)]
        return self._update(self.condition.ask)

    def _update(self, step: Callable[[], Exposure]) -> bool:
        before = self.condition.exposure
        after = step()
        if after is before:
            return False
        self._show(after)
        return after.routes != before.routes

    def _tool_turn(self, made: Call) -> None:
        # A call that JSON cannot hold is malformed: it ends the episode now, not the run when the record is written.
        call = own_copy(made)
        self.events.append(Called(self._turn, call.route_id, dict(call.arguments)))
        observation = self._execute(call)
        self._messages += turn_messages(call, observation, self._turn)
        # The agent may change what it is given; record, condition and environment have copies of their own.
        self._history.append(Turn(own_copy(call), _own_observation(observation)))
        incomplete = self.environment.progress.incomplete
        # Recorded before the condition sees it: the call ran even if the condition's code fails on the result.
        self.events.append(Observed(self._turn, observation.outcome, observation.payload, incomplete))
        before = self.condition.exposure
        after = self.condition.observe(call, observation, incomplete=incomplete)
        digest = sha256_hex(self.condition.state.canonical_json())
        left_out = omissions(call, observation, self.catalog.get(call.route_id))
        self.events.append(StateChanged(self._turn, digest, left_out))
        if after is not before:
            self._show(after)

    def _execute(self, call: Call) -> Observation:
        """Ask the policy, record its decision, and only then run the call."""
        facts = facts_of(call, self.catalog, self.condition.exposure.routes, self.authorised)
        decision = self.policy.decide(call, facts)
        self.events.append(
            Decided(
                self._turn,
                facts.registered,
                facts.exposed,
                facts.schema_valid,
                facts.effect,
                facts.authorised,
                decision.allowed,
                decision.error,
            )
        )
        if not decision.allowed:
            return Observation("blocked", {"status": "blocked", "error": decision.error})
        if not facts.registered:
            return unregistered(call)
        return self.environment.execute(call)
