"""The lock: fingerprints of everything an experiment rests on, what differs from them now, and its release.

A fingerprint's name is ``file#field`` for what is in a file, a plain name for what is computed (``statistics``,
``retriever_behaviour``). The lock of a confirmatory surface also holds its commit and day, and a history: the rewrite that
made it, with the lock it superseded, and the release, after which the surface may be scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from preregistration import protocol
from preregistration.names import UNRANKED
from schemarouter.canonical import fingerprint
from schemarouter.errors import InvalidRunError
from schemarouter.files import read_model

LOCK_SCHEMA_VERSION = 2
FILES: Mapping[str, str] = {
    "development": "development.lock.json",
    "training": "training.lock.json",
    "frozen": "lock.json",
}
# Fingerprints that only running the retriever or the agent gives; left out where that would take too long.
BEHAVIOUR = frozenset({"retriever_behaviour", "agent_behaviour"})


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class _Event(_Part):
    date: str
    commit: str
    reason: str = Field(min_length=1)


class Amendment(_Event):
    """Fingerprints replaced one by one, in locks older than `Rewrite`; still read, never written."""

    kind: Literal["amendment"]
    fingerprints: dict[str, str]


class Rewrite(_Event):
    """The lock was written anew; `superseded` is the one before it, whole, with its own history."""

    kind: Literal["rewrite"]
    superseded: Lock


class Release(_Event):
    """The owner's decision that the surface may be scored."""

    kind: Literal["release"]


class Lock(_Part):
    """The fingerprints as they were promised; only a confirmatory surface has `date` and `commit`."""

    schema_version: Literal[2]
    surface: protocol.SurfaceName
    confirmatory: bool
    date: str | None = None
    commit: str | None = None
    fingerprints: dict[str, str]
    history: tuple[Annotated[Amendment | Rewrite | Release, Field(discriminator="kind")], ...] = Field(
        default=(), strict=False
    )

    @property
    def current(self) -> Mapping[str, str]:
        """The fingerprints with every amendment applied in order."""
        promised = dict(self.fingerprints)
        for event in self.history:
            promised.update(event.fingerprints if isinstance(event, Amendment) else {})
        return promised

    @property
    def released(self) -> bool:
        """Whether the surface may be scored."""
        return any(isinstance(event, Release) for event in self.history)

    @property
    def digest(self) -> str:
        """SHA-256 over the lock without its release: the number to publish.

        It covers every rewrite and amendment with date, commit, reason and what it superseded, down to the first lock. The
        release is left out, so that a digest published before it can still be compared with the lock after it.
        """
        kept = tuple(event for event in self.history if not isinstance(event, Release))
        return fingerprint(self.model_copy(update={"history": kept}).model_dump(mode="json"))

    def events(self) -> Iterator[Amendment | Rewrite | Release]:
        """Every event, oldest first: before each rewrite the events of the lock that it superseded."""
        for event in self.history:
            if isinstance(event, Rewrite):
                yield from event.superseded.events()
            yield event


@dataclass(frozen=True, slots=True)
class Comparison:
    """One fingerprint as promised and as it is now; None where one side has none."""

    name: str
    promised: str | None
    actual: str | None

    @property
    def holds(self) -> bool:
        """Whether both are there and equal."""
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
    """Compare every fingerprint with what is there now, sorted by name.

    Whether the surface is confirmatory comes first, where it differs: it decides how strictly the lock is kept.
    """
    promised = lock.current
    rows = [Comparison(name, promised.get(name), actual.get(name)) for name in sorted({*promised, *actual})]
    held = str(lock.confirmatory)
    stated = actual.get(f"preregistration/{protocol.FILES[lock.surface]}#confirmatory", held)
    return rows if stated == held else [Comparison("confirmatory", held, stated), *rows]


def require_as_locked(lock: Lock, actual: Mapping[str, str]) -> None:
    """Raise InvalidRunError naming what is not as it was locked, behaviour only where `actual` holds it."""
    unread = frozenset() if actual.keys() >= BEHAVIOUR else BEHAVIOUR
    broken = [row for row in compare(lock, actual) if not row.holds and row.name not in unread]
    if broken:
        shown = "\n  ".join(f"{row.name}: locked {row.promised}, here {row.actual}" for row in broken[:10])
        more = f"\n  and {len(broken) - 10} more" if len(broken) > 10 else ""
        raise InvalidRunError(f"the {lock.surface} surface is not as it was locked:\n  {shown}{more}")


def rewritten(lock: Lock, actual: Mapping[str, str], *, date: str, commit: str, reason: str) -> Lock:
    """A new lock of everything as it is now, with the old one in its history.

    Raises InvalidRunError for a lock that is released, and for that of a surface that is free to use.
    """
    if not lock.confirmatory:
        raise InvalidRunError(
            f"the {lock.surface} surface is free to use; schemarouter lock write --surface {lock.surface} writes its lock anew."
        )
    if lock.released:
        raise InvalidRunError(
            f"the {lock.surface} surface's lock is released: what it promises stands, and a study of anything else is "
            "another study. A lock can be rewritten only before its release."
        )
    event = Rewrite(kind="rewrite", date=date, commit=commit, reason=reason, superseded=lock)
    now = {"date": date, "commit": commit, "fingerprints": dict(actual), "history": (event,)}
    return lock.model_copy(update=now)


def scoring_refusal(surface: str, conditions: Iterable[str], folder: Path | None = None) -> str:
    """Why these conditions must not run on a surface; empty when they may."""
    if surface != "frozen" or set(conditions) <= UNRANKED:
        return ""
    lock = read_lock(surface, folder)
    if lock is None:
        return (
            "the frozen surface is not locked; no condition that retrieves runs on it before that, exploratory or not. "
            "Use --surface development."
        )
    if not lock.released:
        return (
            f"the frozen surface is locked ({lock.date}, digest {lock.digest[:16]}) and not released: no condition that "
            "retrieves runs on it before the owner's `schemarouter lock release`, exploratory or not. Use --surface development."
        )
    return ""
