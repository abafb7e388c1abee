"""Counting the tokens of prompts with a real LLM tokenizer (Mistral v3, tekken).

Vocabulary and pattern come from a file of the package `mistral-common` and are run by `tiktoken`, as that package does; importing
the package itself takes longer than counting a whole run.

A prompt is a sequence of pieces between control tokens, and no token spans a control token: the count of a prompt is the sum of
the counts of its pieces. The tool list is one such piece, and no token in it spans the comma and space between two tools, since
the tokenizer's pattern ends a word after punctuation and begins the next one at the space. So each text and each tool is counted
once. Tests compare the sums with the tokenizer's own encoding of whole conversations.
"""

from __future__ import annotations

import json
import struct
from binascii import a2b_base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from schemarouter.caches import Bounded
from schemarouter.catalog import Catalog
from schemarouter.disk_cache import DiskCache
from schemarouter.errors import SchemaRouterError

if TYPE_CHECKING:
    from tiktoken import Encoding

TOKENIZER = "mistral-v3-tekken"
_LIBRARIES = ("mistral-common", "tiktoken")
_PACKAGE = "mistral_common"
_MODEL = "data/tekken_240718.json"
_BRACKETS = 2
_MAX_KNOWN = 2**15
_COUNT = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `content` is its text, or the JSON text of a tool call or result."""

    role: Literal["user", "assistant", "call", "result"]
    content: str


@cache
def _tekken() -> Encoding:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise _missing()
    try:
        from tiktoken import Encoding

        pattern, ranks = _vocabulary(Path(spec.submodule_search_locations[0]) / _MODEL)
    except (ImportError, OSError):
        raise _missing() from None
    encoding = Encoding(TOKENIZER, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    # The encoding holds a copy; this one would take another 50 MB.
    ranks.clear()
    return encoding


def _vocabulary(path: Path) -> tuple[str, dict[bytes, int]]:
    """The pattern, and the ranks of tokens by their bytes, of a tekken file."""
    model = orjson.loads(path.read_bytes())
    config = model["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    return config["pattern"], {a2b_base64(token["token_bytes"]): token["rank"] for token in model["vocab"][:size]}


def load_tokenizer() -> None:
    """Load the tokenizer now rather than at the first uncached text. Raises SchemaRouterError where it is missing."""
    _tekken()


def _missing() -> SchemaRouterError:
    return SchemaRouterError("the embedded tokenizer is missing: pip install mistral-common.")


def cached_counts(folder: Path | None = None) -> DiskCache:
    """The counts of earlier runs with the same tokenizer, for a `TokenCounter`.

    Args:
        folder: Where they are cached; the cache folder unless given.

    Returns:
        The cache.

    Raises:
        SchemaRouterError: Where the tokenizer is missing.
    """
    try:
        libraries = [version(library) for library in _LIBRARIES]
    except PackageNotFoundError:
        raise _missing() from None
    return DiskCache("counts", [TOKENIZER, libraries], _COUNT.size, folder=folder)


def call_text(name: str, arguments: Any, call_id: str) -> str:
    """The JSON text of a tool call in the prompt."""
    # Sorted as in a record, so that a count from the record is the same.
    body = [{"name": name, "arguments": _sorted(arguments), "id": call_id}]
    return json.dumps(body, ensure_ascii=False)


def result_text(payload: Any, call_id: str) -> str:
    """The JSON text of a tool result in the prompt."""
    return json.dumps({"content": _sorted(payload), "call_id": call_id}, ensure_ascii=False)


def _sorted(value: Any) -> Any:
    """The value with the keys of every object sorted."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass
class TokenCounter:
    """Counts the tokens of texts, tool lists and conversations, each text once while it is cached.

    Attributes:
        store: Counts of earlier runs (`cached_counts`); without it every text is encoded once in this process.
    """

    store: DiskCache | None = None
    _texts: Bounded[str, int] = field(default_factory=lambda: Bounded(_MAX_KNOWN))
    _tools: Bounded[tuple[str, tuple[str, ...]], int] = field(default_factory=lambda: Bounded(_MAX_KNOWN))
    _schemas: dict[tuple[str, str], str] = field(default_factory=dict)

    def text(self, text: str) -> int:
        """Count the tokens of a text."""
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = self._count(text)
        return known

    def tools(self, catalog: Catalog, routes: Sequence[str]) -> int:
        """Count the tokens that the schemas of these tools add to a prompt: 0 without tools."""
        if not routes:
            return 0
        key = (catalog.fingerprint, tuple(routes))
        known = self._tools.get(key)
        if known is None:
            befores = ("[", *" " * (len(routes) - 1))
            afters = (*"," * (len(routes) - 1), "]")
            pieces = zip(befores, routes, afters, strict=True)
            counts = (self.text(before + self._schema(catalog, route) + after) for before, route, after in pieces)
            known = self._tools[key] = sum(counts) + _BRACKETS
        return known

    def _schema(self, catalog: Catalog, route: str) -> str:
        """The JSON text of one tool, as an item of the tool list."""
        key = (catalog.fingerprint, route)
        known = self._schemas.get(key)
        if known is None:
            known = self._schemas[key] = json.dumps(catalog[route].tool_schema, ensure_ascii=False)
        return known

    def _count(self, text: str) -> int:
        stored = self.store.get(text) if self.store is not None else None
        if stored is not None:
            return int(_COUNT.unpack(stored)[0])
        count = len(_tekken().encode_ordinary(text))
        if self.store is not None:
            self.store.put(text, _COUNT.pack(count))
        return count

    def conversation(self, system: str, messages: Sequence[Message]) -> int:
        """Count the tokens of a prompt without its tools; the system prompt is put before the last user message."""
        last_user = max((index for index, message in enumerate(messages) if message.role == "user"), default=-1)
        total = 1
        for index, message in enumerate(messages):
            content = f"{system}\n\n{message.content}" if index == last_user else message.content
            # One control token closes an assistant's text; every other message is between two.
            total += self.text(content) + (1 if message.role == "assistant" else _BRACKETS)
        return total
