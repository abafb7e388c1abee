"""Vectors of texts, computed once and kept on disk, those of queries in memory too.

A file's name is the hash of encoder and texts, so that another encoder, catalog or wording never meets an old entry; its
last 32 bytes are the SHA-256 of the rest, so that a torn or altered file is computed again and not believed.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from schemarouter.identity import fingerprint
from schemarouter.retrieval.latest import Latest

_DIGEST_BYTES = 32
_Float = TypeVar("_Float", np.float32, np.float64)


class Encoder(Protocol):
    """Turns texts into unit vectors."""

    name: str
    dimensions: int

    @property
    def identity(self) -> str:
        """A hash of everything that decides the vectors."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit vectors, shape (len(texts), dimensions)."""

    def count_tokens(self, text: str) -> int:
        """How many tokens the encoder reads of a query."""


@runtime_checkable
class Prompted(Protocol):
    """What an encoder has besides that reads queries otherwise than entries, or reads only so many tokens of a text."""

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit vectors of queries, shape (len(texts), dimensions); `encode` is for entries."""

    def cut(self, text: str, *, query: bool) -> int:
        """How many tokens of a query or of an entry's text are beyond the limit and not read."""


def unread_of_entries(encoder: Encoder, texts: Sequence[str]) -> str:
    """How many entries the encoder does not read to their end, in words; empty where it reads all."""
    short = sum(encoder.cut(text, query=False) > 0 for text in texts) if isinstance(encoder, Prompted) else 0
    return f"the encoder does not read {short} of {len(texts)} entries to their end" if short else ""


def unread_of_query(encoder: Encoder, text: str) -> str:
    """How much of a query the encoder does not read, in words; empty where it reads all."""
    lost = encoder.cut(text, query=True) if isinstance(encoder, Prompted) else 0
    return f"the encoder does not read the last {lost} tokens of the query" if lost else ""


def cache_folder() -> Path | None:
    """Where vectors are kept between runs: ``SCHEMAROUTER_CACHE``, else the user's cache folder; None without a home."""
    chosen = os.environ.get("SCHEMAROUTER_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "schemarouter-research"
    except RuntimeError:
        return None


def entry_vectors(encoder: Encoder, texts: Sequence[str], folder: Path | None = None) -> NDArray[np.float32]:
    """Vectors of the entries of a catalog, shape (len(texts), dimensions), float32, kept on disk.

    A cache that cannot be read or written costs time and nothing else.
    """
    digest = fingerprint(
        [encoder.name, encoder.identity, [hashlib.sha256(t.encode("utf-8", "replace")).hexdigest() for t in texts]]
    )
    folder = folder or cache_folder()
    path = folder / "vectors" / f"{digest}.npy" if folder else None
    return _kept(path, (len(texts), encoder.dimensions), np.float32, lambda: encoder.encode(texts).astype(np.float32))


def _kept(
    path: Path | None, shape: tuple[int, int], kind: type[_Float], make: Callable[[], NDArray[_Float]]
) -> NDArray[_Float]:
    """What a file keeps, or what `make` gives, which is then kept there where that can be done."""
    stored = _read(path, shape, kind) if path else None
    if stored is not None:
        return stored
    made = make()
    if path:
        with suppress(OSError):
            _write(path, made)
    return made


def _read(path: Path, shape: tuple[int, int], kind: type[_Float]) -> NDArray[_Float] | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        return None
    blank = np.zeros(shape, dtype=kind)
    expected = _npy(blank)
    header = expected[: len(expected) - blank.nbytes]
    # Comparing the header leaves nothing of an unknown file to be parsed.
    if len(body) != len(expected) or not body.startswith(header):
        return None
    return np.frombuffer(body[len(header) :], dtype=kind).reshape(shape).copy()


def _npy(vectors: NDArray[np.floating[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(vectors), allow_pickle=False)
    return buffer.getvalue()


def _write(path: Path, vectors: NDArray[np.floating[Any]]) -> None:
    body = _npy(vectors)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        temporary = Path(file.name)
    try:
        temporary.write_bytes(body + hashlib.sha256(body).digest())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class QueryVectors:
    """The vectors of queries: the latest in memory, all on disk in float64, one file each, checked as those of entries are."""

    def __init__(self, encoder: Encoder, *, limit: int = 4096, folder: Path | None = None) -> None:
        self._encoder = encoder
        self._folder = folder or cache_folder()
        self._known: Latest[NDArray[np.float64]] = Latest(self._stored_or_encoded, limit)

    def get(self, text: str) -> NDArray[np.float64]:
        """The unit vector of a text, shape (dimensions,)."""
        return self._known.get(text)

    def _stored_or_encoded(self, text: str) -> NDArray[np.float64]:
        encoder = self._encoder
        digest = fingerprint(
            [encoder.name, encoder.identity, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()]
        )
        path = self._folder / "queries" / digest[:2] / f"{digest}.npy" if self._folder else None
        encode = encoder.encode_queries if isinstance(encoder, Prompted) else encoder.encode
        vector: NDArray[np.float64] = _kept(path, (1, encoder.dimensions), np.float64, lambda: encode([text]))[0]
        return vector
