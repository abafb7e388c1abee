"""Counting the tokens of prompts with a real LLM tokenizer (Mistral v3, tekken).

Vocabulary and pattern are the file of the package `mistral-common`, which runs it by `tiktoken`, and so does this; what that
package does besides takes longer to load than a run takes to count.

A prompt is a sequence of pieces between control tokens, and no token reaches across a control token: the count of a prompt is
the sum of the counts of its pieces. The tools are one such piece, and in it no token reaches across a comma that a space follows,
as between two tools: to the tokenizer's pattern, signs of punctuation before a space end a word, and the space begins the next.
That lets each text and each tool be counted once and kept. Tests compare the sums with the tokenizer's own encoding of whole
conversations.
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
    # What encodes has a copy of its own; this one would be held besides, 50 MB for nothing.
    ranks.clear()
    return encoding


def _vocabulary(path: Path) -> tuple[str, dict[bytes, int]]:
    """Pattern and ranks of a tekken file."""
    model = orjson.loads(path.read_bytes())
    config = model["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    return config["pattern"], {a2b_base64(token["token_bytes"]): token["rank"] for token in model["vocab"][:size]}


def load_tokenizer() -> None:
    """Load the tokenizer now, and not when the first unknown text is counted. Raises SchemaRouterError where it is missing."""
    _tekken()


def _missing() -> SchemaRouterError:
    return SchemaRouterError("the embedded tokenizer is missing: pip install mistral-common.")


def cached_counts(folder: Path | None = None) -> DiskCache:
    """Counts that earlier runs with the same tokenizer made, in `folder`, else in the cache folder.

    For runs, which are counted again when they are judged. Raises SchemaRouterError where the tokenizer is missing.
    """
    try:
        libraries = [version(library) for library in _LIBRARIES]
    except PackageNotFoundError:
        raise _missing() from None
    return DiskCache("counts", [TOKENIZER, libraries], _COUNT.size, folder=folder)


def call_text(name: str, arguments: Any, call_id: str) -> str:
    """The JSON text in which a tool call stands in the prompt."""
    # Sorted, as a record holds them: counting again from the record must give the same.
    body = [{"name": name, "arguments": _sorted(arguments), "id": call_id}]
    return json.dumps(body, ensure_ascii=False)


def result_text(payload: Any, call_id: str) -> str:
    """The JSON text in which a tool result stands in the prompt."""
    return json.dumps({"content": _sorted(payload), "call_id": call_id}, ensure_ascii=False)


def _sorted(value: Any) -> Any:
    """The value with the keys of every object sorted."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass
class TokenCounter:
    """Counts texts, tool lists and conversations; a text is encoded once while it is remembered, a tool by its place in a list.

    With a `store` (`cached_counts`), what that holds is not encoded at all; without, everything is counted anew.
    """

    store: DiskCache | None = None
    _texts: Bounded[str, int] = field(default_factory=lambda: Bounded(_MAX_KNOWN))
    _tools: Bounded[tuple[str, tuple[str, ...]], int] = field(default_factory=lambda: Bounded(_MAX_KNOWN))
    _schemas: dict[tuple[str, str], str] = field(default_factory=dict)

    def text(self, text: str) -> int:
        """Tokens of a piece of text."""
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = self._count(text)
        return known

    def tools(self, catalog: Catalog, routes: Sequence[str]) -> int:
        """Tokens that the schemas of these tools add to a prompt: 0 without tools."""
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
        """The JSON text of one tool, as it stands in that of a list."""
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
        """Tokens of a prompt without tools; the system prompt stands before the last user message."""
        last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
        total = 1
        for position, message in enumerate(messages):
            content = f"{system}\n\n{message.content}" if position == last_user else message.content
            # An assistant's text is closed by one control token, everything else stands between two.
            total += self.text(content) + (1 if message.role == "assistant" else _BRACKETS)
        return total
