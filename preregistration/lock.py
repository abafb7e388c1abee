"""The lock: the fingerprints of everything an experiment rests on, what differs from them now, and who has opened it.

A fingerprint's name says where the thing stands: ``file#field`` for what is in a file, a plain name for what is computed
(``statistics``, ``retriever_behaviour``). A lock of a confirmatory surface carries the commit and the day, and a history:
amendments of the retriever's, agent's or code's part, and the release, after which the surface may be scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from preregistration import protocol
from schemarouter.canonical import fingerprint
from schemarouter.errors import InvalidRunError
from schemarouter.files import read_model

LOCK_SCHEMA_VERSION = 2
FILES: Mapping[str, str] = {"development": "development.lock.json", "frozen": "lock.json"}
# What an amendment may supersede; surface, catalogs, protocol, state contract and statistics stay.
AMENDABLE = ("retriever", "agent", "code")
# What takes running the thing to know; left out where that would cost more than it is worth.
BEHAVIOUR = frozenset({"retriever_behaviour", "agent_behaviour"})
# Arms that rank nothing show that tasks can be solved, and are no outcome.
UNRANKED = frozenset({"FULL", "ORACLE"})


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class LockEvent(_Part):
    """Something done to a lock: an amendment with the fingerprints that it replaces, or the release."""

    kind: Literal["amendment", "release"]
    date: str
    commit: str
    reason: str = Field(min_length=1)
    fingerprints: dict[str, str] = Field(default_factory=dict)


class Lock(_Part):
    """What was promised; `date` and `commit` are those of a confirmatory surface."""

    schema_version: Literal[2]
    surface: Literal["development", "frozen"]
    confirmatory: bool
    date: str | None = None
    commit: str | None = None
    fingerprints: dict[str, str]
    history: tuple[LockEvent, ...] = Field(default=(), strict=False)

    @property
    def current(self) -> Mapping[str, str]:
        """The fingerprints with every amendment in its order."""
        promised = dict(self.fingerprints)
        for event in self.history:
            promised.update(event.fingerprints)
        return promised

    @property
    def released(self) -> bool:
        """Whether the surface may be scored."""
        return any(event.kind == "release" for event in self.history)

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the history: the one number to publish elsewhere."""
        return fingerprint(self.model_dump(mode="json", exclude={"history"}))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One locked thing: what was promised and what is here; None where one side has nothing."""

    name: str
    promised: str | None
    actual: str | None

    @property
    def holds(self) -> bool:
        """Whether both are the same."""
        return self.promised is not None and self.promised == self.actual


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values as one level of names: ``{"catalogs": {"100": x}}`` becomes ``{"catalogs.100": x}``."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


def read_lock(surface: str, folder: Path | None = None) -> Lock | None:
    """The lock of a surface, or None where there is none yet. Raises InvalidRunError for one that cannot be read."""
    path = (folder or protocol.FOLDER) / FILES[surface]
    lock = read_model(path, Lock, InvalidRunError) if path.exists() else None
    if lock is not None and lock.surface != surface:
        raise InvalidRunError(f"{path.name}: is the lock of the {lock.surface} surface.")
    return lock


def compare(lock: Lock, actual: Mapping[str, str]) -> list[Comparison]:
    """Every locked thing beside what is here, sorted by name; first, where it differs, whether the surface is confirmatory.

    That stands in the lock beside its fingerprints, since it decides how strictly the lock is kept.
    """
    promised = lock.current
    rows = [Comparison(name, promised.get(name), actual.get(name)) for name in sorted({*promised, *actual})]
    held = str(lock.confirmatory)
    stated = actual.get(f"preregistration/{protocol.FILES[lock.surface]}#confirmatory", held)
    return rows if stated == held else [Comparison("confirmatory", held, stated), *rows]


def require_as_locked(lock: Lock, actual: Mapping[str, str]) -> None:
    """Raise InvalidRunError naming every file and field that is not as it was locked; behaviour only where it was read."""
    unread = frozenset() if actual.keys() >= BEHAVIOUR else BEHAVIOUR
    broken = [row for row in compare(lock, actual) if not row.holds and row.name not in unread]
    if broken:
        shown = "\n  ".join(f"{row.name}: locked {row.promised}, here {row.actual}" for row in broken[:10])
        more = f"\n  and {len(broken) - 10} more" if len(broken) > 10 else ""
        raise InvalidRunError(f"the {lock.surface} surface is not as it was locked:\n  {shown}{more}")


def amended(lock: Lock, actual: Mapping[str, str], *, date: str, commit: str, reason: str) -> Lock:
    """The lock with an amendment for what differs. Raises InvalidRunError for what no amendment may touch."""
    if lock.released:
        raise InvalidRunError("the lock is released; nothing of it can be amended any more.")
    broken = [row for row in compare(lock, actual) if not row.holds]
    if not broken:
        raise InvalidRunError("everything is as it was locked; there is nothing to amend.")
    fixed = [row.name for row in broken if not row.name.startswith(AMENDABLE) or row.actual is None]
    if fixed:
        raise InvalidRunError(
            f"an amendment can supersede {', '.join(AMENDABLE)} alone; these stay as locked: {', '.join(fixed[:5])}."
        )
    changes = {row.name: row.actual for row in broken if row.actual is not None}
    event = LockEvent(kind="amendment", date=date, commit=commit, reason=reason, fingerprints=changes)
    return lock.model_copy(update={"history": (*lock.history, event)})


def scoring_refusal(surface: str, conditions: Iterable[str], folder: Path | None = None) -> str:
    """Why these arms must not run on a surface, or nothing when they may."""
    if surface != "frozen" or set(conditions) <= UNRANKED:
        return ""
    lock = read_lock(surface, folder)
    if lock is None:
        return (
            "the frozen surface is not locked; no arm that retrieves runs on it before that, exploratory or not. "
            "Use --surface development."
        )
    if not lock.released:
        return (
            f"the frozen surface is locked ({lock.date}, digest {lock.digest[:16]}) and not released: no arm that retrieves "
            "runs on it before the owner's `schemarouter lock release`, exploratory or not. Use --surface development."
        )
    return ""
