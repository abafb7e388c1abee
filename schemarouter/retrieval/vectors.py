"""Vectors of texts, computed once and cached on disk; those of queries in memory too.

The vectors of a catalog's entries are one file. Its name is a hash of the encoder, its code, this machine's arithmetic and the
texts, so that after a change of any of them no old file is read. Its last 32 bytes are the SHA-256 of the rest: a torn or
altered file is computed again. The vectors of queries are records of one file for each encoder (`schemarouter.disk_cache`).
"""

from __future__ import annotations

import hashlib
import inspect
import io
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from schemarouter.caches import Latest
from schemarouter.canonical import fingerprint, sha256_hex
from schemarouter.disk_cache import DIGEST_BYTES, DiskCache, cache_folder, read_regular
from schemarouter.files import replace_file
from schemarouter.retrieval.base import RetrieverError

_MAX_BYTES = 2**32


class Encoder(Protocol):
    """Encodes texts as unit vectors of `dimensions` numbers."""

    name: str
    dimensions: int

    @property
    def identity(self) -> str:
        """A hash of everything but the text that decides a vector."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit vectors, shape (len(texts), dimensions), float64."""


@runtime_checkable
class Prompted(Protocol):
    """Further methods of an encoder that encodes queries otherwise than entries, or that reads a limited number of tokens."""

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit vectors of queries, shape (len(texts), dimensions), float64; `encode` is for entries."""

    def cut(self, text: str, *, query: bool) -> int:
        """How many tokens of a query or an entry's text are beyond the limit and not read."""


def unread_of_entries(encoder: Encoder, texts: Sequence[str]) -> str:
    """A note on how many entries the encoder does not read to their end; empty where it reads all."""
    short = sum(encoder.cut(text, query=False) > 0 for text in texts) if isinstance(encoder, Prompted) else 0
    return f"the encoder does not read {short} of {len(texts)} entries to their end" if short else ""


def unread_of_query(encoder: Encoder, text: str) -> str:
    """A note on how much of a query the encoder does not read; empty where it reads all."""
    lost = encoder.cut(text, query=True) if isinstance(encoder, Prompted) else 0
    return f"the encoder does not read the last {lost} tokens of the query" if lost else ""


def entry_vectors(encoder: Encoder, texts: Sequence[str], folder: Path | None = None) -> NDArray[np.float32]:
    """Return the vectors of the entries of a catalog, from the cache on disk where they are there.

    Args:
        encoder: The encoder.
        texts: The texts of the entries.
        folder: Where the cache is; the cache folder unless given. One that cannot be read or written costs time alone.

    Returns:
        Unit vectors, shape (len(texts), dimensions), float32.
    """
    digest = fingerprint([*_cache_identity(encoder), [sha256_hex(t.encode("utf-8", "replace")) for t in texts]])
    folder = folder or cache_folder()
    path = folder / "vectors" / f"{digest}.npy" if folder else None
    shape = (len(texts), encoder.dimensions)
    stored = _read(path, shape) if path else None
    if stored is not None:
        return stored
    vectors = _finite(encoder, texts, encoder.encode(texts)).astype(np.float32)
    if path:
        body = _npy(vectors)
        with suppress(OSError):
            replace_file(path, body + _digest(path, body))
    return vectors


def _finite(encoder: Encoder, texts: Sequence[str], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The vectors. Raises RetrieverError, with encoder and text, for one that holds NaN or an infinity: it would rank nothing."""
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if broken.size:
        raise RetrieverError(
            f"the encoder {encoder.name} gives a vector with NaN or an infinity for {len(broken)} of {len(texts)} texts, "
            f"the first {texts[int(broken[0])][:80]!r}; use another model, or save this one again."
        )
    return vectors


def _cache_identity(encoder: Encoder) -> list[str]:
    """Everything besides the text that decides the bits of a vector: encoder, its code, this machine's arithmetic."""
    return [encoder.name, encoder.identity, _code_of(type(encoder)), _arithmetic()]


@cache
def _code_of(kind: type) -> str:
    """SHA-256 of the source file of a class; empty where there is none."""
    try:
        return sha256_hex(Path(inspect.getfile(kind)).read_bytes())
    except (OSError, TypeError):
        return ""


@cache
def _arithmetic() -> str:
    """A hash of how numpy's BLAS rounds on this machine: kernels of other processors and versions sum in other orders."""
    numbers = np.random.Generator(np.random.PCG64(0))
    products = [numbers.standard_normal((8, size)) @ numbers.standard_normal((size, 256)) for size in (320, 1280)]
    return fingerprint([np.__version__, *(sha256_hex(product.tobytes()) for product in products)])


def _read(path: Path, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    try:
        data = read_regular(path, _MAX_BYTES)
    except OSError:
        return None
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if _digest(path, body) != digest:
        return None
    blank = np.zeros(shape, dtype=np.float32)
    expected = _npy(blank)
    header = expected[: len(expected) - blank.nbytes]
    # Compared rather than parsed: nothing of an unknown file is interpreted.
    if len(body) != len(expected) or not body.startswith(header):
        return None
    return np.frombuffer(body[len(header) :], dtype=np.float32).reshape(shape).copy()


def _digest(path: Path, body: bytes) -> bytes:
    """SHA-256 of a file's name and content, so that no file can replace another one."""
    return hashlib.sha256(path.name.encode() + body).digest()


def _npy(vectors: NDArray[np.float32]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(vectors), allow_pickle=False)
    return buffer.getvalue()


class QueryVectors:
    """The unit vectors of queries, cached in memory and on disk, so that a known text needs no model.

    Args:
        encoder: The encoder.
        limit: How many vectors are held in memory.
        folder: Where the cache on disk is; the cache folder unless given.
    """

    def __init__(self, encoder: Encoder, *, limit: int = 4096, folder: Path | None = None) -> None:
        self.encoder = encoder
        self._folder = folder
        self._known: Latest[NDArray[np.float64]] = Latest(self._compute, limit)

    def get(self, text: str) -> NDArray[np.float64]:
        """Return the vector of a text, shape (dimensions,), float64."""
        return self._known.get(text)

    def get_all(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        """Return the vectors of several texts, shape (dimensions,) each; new texts are encoded together."""
        vectors = {text: self._known.get(text) for text in texts if text in self._known}
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        for text, value in zip(new, self._stored_or_encoded(new), strict=True):
            vectors[text] = value
            self._known.put(text, value)
        return [vectors[text] for text in texts]

    @cached_property
    def _stored(self) -> DiskCache:
        encoder = self.encoder
        size = encoder.dimensions * np.dtype(np.float64).itemsize
        return DiskCache("queries", _cache_identity(encoder), size, folder=self._folder)

    def _compute(self, text: str) -> NDArray[np.float64]:
        return self._stored_or_encoded([text])[0]

    def _stored_or_encoded(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        values = {text: value for text in texts if (value := self._stored.get(text)) is not None}
        values |= self._encoded([text for text in texts if text not in values])
        return [np.frombuffer(values[text], dtype="<f8") for text in texts]

    def _encoded(self, texts: Sequence[str]) -> dict[str, bytes]:
        """The stored bytes of the vectors of texts, which are encoded together."""
        if not texts:
            return {}
        encoder = self.encoder
        encode = encoder.encode_queries if isinstance(encoder, Prompted) else encoder.encode
        encoded = {}
        for text, vector in zip(texts, _finite(encoder, texts, encode(texts)), strict=True):
            encoded[text] = vector.astype("<f8").tobytes()
            self._stored.put(text, encoded[text])
        return encoded
