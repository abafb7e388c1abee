"""The lock: the fingerprints of everything an experiment rests on, and what differs from them now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from preregistration.protocol import FOLDER
from schemarouter.catalog import read_model
from schemarouter.errors import InvalidRunError

FILES: Mapping[str, str] = {"development": "development.lock.json", "frozen": "lock.json"}


class Lock(BaseModel):
    """What was promised: fingerprints and specs by name (``catalogs.100``, ``protocol``, …)."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_version: int
    surface: str
    confirmatory: bool
    fingerprints: dict[str, str]


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


def flatten(identities: Mapping[str, Any]) -> dict[str, str]:
    """Identities as one level of names: ``{"catalogs": {"100": x}}`` becomes ``{"catalogs.100": x}``."""
    flat: dict[str, str] = {}
    for name, value in identities.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{inner}": str(item) for inner, item in value.items()})
        else:
            flat[name] = str(value)
    return flat


def read_lock(surface: str, folder: Path = FOLDER) -> Lock | None:
    """The lock of a surface, or None where there is none yet. Raises InvalidRunError for one that cannot be read."""
    path = folder / FILES[surface]
    return read_model(path, Lock, InvalidRunError) if path.exists() else None


def compare(lock: Lock, identities: Mapping[str, Any]) -> list[Comparison]:
    """Every locked thing beside what is here, sorted by name."""
    actual = flatten(identities)
    return [
        Comparison(name, lock.fingerprints.get(name), actual.get(name))
        for name in sorted({*lock.fingerprints, *actual})
    ]
