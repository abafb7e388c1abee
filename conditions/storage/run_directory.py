"""A run directory: the names of its files, and its header, run.json."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from conditions.running.plan import PlanDocument
from schemarouter.catalog.views import CatalogView
from schemarouter.errors import InvalidRunError
from schemarouter.files import Document, VersionOne, parse_document, read_json

RUN_SCHEMA_VERSION = 1
RUN_FILE = "run.json"
AGGREGATE_FILE = "aggregate.json"
VERDICT_FILE = "verdict.json"


class Identities(Document):
    """Everything that a result depends on, by fingerprint (SHA-256 in hex) or full spec; a lock promises the same."""

    agent: str
    """The agent's full spec."""
    catalog_view: CatalogView
    """The part of the catalogs that the retriever was built over: ``full`` or ``names-only``."""
    catalogs: dict[str, str]
    """Fingerprint of every catalog's whole contracts, by its size."""
    protocol: str
    """Fingerprint of the preregistered protocol."""
    retriever: str
    """The retriever's full spec."""
    retriever_data: str
    """Fingerprint of the data that the retriever reads besides entries and queries: models, word lists, weights."""
    state_contract: str
    """Fingerprint of the twelve fields of the execution state."""
    statistics: str
    """SHA-256 of the bootstrap's counts matrix over the tasks of the run."""
    surface: str
    """Fingerprint of every task, prompt and key."""
    tokenizer: str
    """The tokenizer that counts tokens, with its version and the hash of its data."""


class Provenance(Document):
    """The command and the code that made a run."""

    argv: tuple[str, ...] = Field(strict=False)
    """The command as it was typed, without the program; empty for a run made from Python."""
    code: str
    """SHA-256 over the code and data of the packages."""
    commit: str | None
    """Commit of the checkout that the program ran from; null where it ran from none."""
    dirty: bool | None
    """Whether the checkout had uncommitted changes; null when unknown."""
    packages: dict[str, str]
    """Versions of the packages that results depend on."""
    python: str
    """Version of Python."""


class RunLimits(Document):
    """Limits that can change how an episode ends."""

    episode_seconds: float | None
    """An episode that takes longer has failed; null without a limit."""


class RunHeader(Document):
    """run.json: the inputs of a run, written before its first episode."""

    schema_version: VersionOne
    """Version of this document and of the records."""
    surface: str
    """``development`` or ``frozen``."""
    stamp: str
    """Why the run is exploratory; empty for the locked protocol alone. Recomputed wherever it is read."""
    identities: Identities
    """Everything that the result depends on."""
    plan: PlanDocument
    """The grid of episodes."""
    provenance: Provenance
    """The code under which the run began."""
    limits: RunLimits
    """Limits of an episode."""
    resumed: tuple[Provenance, ...] = Field(strict=False)
    """Every other code under which the run was resumed, in order."""


class ShardHeader(Document):
    """The first line of a shard: the parts of its run's header that decide what its records mean."""

    schema_version: VersionOne
    """As in the run's header."""
    identities: Identities
    """As in the run's header."""
    plan: PlanDocument
    """As in the run's header."""
    limits: RunLimits
    """As in the run's header."""
    shard: tuple[int, int] = Field(strict=False)
    """Index of the shard, from 1, and how many there are."""


def read_header(folder: Path) -> RunHeader:
    """Read run.json. Raises InvalidRunError when it is missing, half-written, of a newer version or holds anything wrong."""
    path = folder / RUN_FILE
    if not path.exists() and not folder.is_file():
        raise InvalidRunError(f"{path} does not exist: {folder} is no run directory.")
    return parse_document(read_json(path, InvalidRunError, str(path)), RunHeader, str(path), "run header")
