"""Counting the tokens of prompts with a real LLM tokenizer (Mistral v3, tekken).

A prompt is a sequence of pieces between control tokens, and no token reaches across a control token: the count of a prompt is
the sum of the counts of its pieces, and the tools are one piece. That lets each piece be counted once and kept. A test
compares the sums with the tokenizer's own encoding of whole conversations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from schemarouter.catalog import Catalog
from schemarouter.errors import SchemaRouterError

TOKENIZER = "mistral-v3-tekken"
_BRACKETS = 2


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `content` is its text, or the JSON text of a tool call or result."""

    role: Literal["user", "assistant", "call", "result"]
    content: str


@cache
def _tekken() -> Any:
    try:
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    except ImportError:
        raise SchemaRouterError("the embedded tokenizer is missing: pip install mistral-common.") from None
    return MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer


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
    """Counts texts, tool lists and conversations; every text and tool list is encoded once."""

    _texts: dict[str, int] = field(default_factory=dict)
    _tools: dict[tuple[str, tuple[str, ...]], int] = field(default_factory=dict)

    def text(self, text: str) -> int:
        """Tokens of a piece of text."""
        known = self._texts.get(text)
        if known is None:
            known = len(_tekken().encode(text, bos=False, eos=False))
            self._texts[text] = known
        return known

    def tools(self, catalog: Catalog, routes: Sequence[str]) -> int:
        """Tokens that the schemas of these tools add to a prompt: 0 without tools."""
        if not routes:
            return 0
        key = (catalog.fingerprint, tuple(routes))
        known = self._tools.get(key)
        if known is None:
            schemas = json.dumps([catalog[route].tool_schema for route in routes], ensure_ascii=False)
            known = len(_tekken().encode(schemas, bos=False, eos=False)) + _BRACKETS
            self._tools[key] = known
        return known

    def conversation(self, system: str, messages: Sequence[Message]) -> int:
        """Tokens of a prompt without tools; the system prompt stands before the last user message."""
        last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
        total = 1
        for position, message in enumerate(messages):
            content = f"{system}\n\n{message.content}" if position == last_user else message.content
            # An assistant's text is closed by one control token, everything else stands between two.
            total += self.text(content) + (1 if message.role == "assistant" else _BRACKETS)
        return total
