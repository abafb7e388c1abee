"""Token counts against the tokenizer's own encoding of whole conversations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

import surface
from schemarouter.agents.base import REQUEST_MORE_TOOLS, SYSTEM_PROMPT, TASK_INCOMPLETE
from schemarouter.catalog import Capability, Catalog, OutputField, Parameter, load_catalog
from schemarouter.errors import SchemaRouterError
from schemarouter.tokens import Message, TokenCounter, _tekken, cached_counts, call_text, result_text
from tests.strategies import LAWS, free_text, json_values, laws

REFERENCE = MistralTokenizer.v3(is_tekken=True)
ASK = "ask"
QUERIES = [
    "Wie schwer ist Gerät T-17? Bitte in kg, nicht in lb.",
    "설비 T-17의 하중을 확인하고 임대 계약을 갱신해 줘",
    "荷重センサーの最新の値を教えてください",
    "설비 T-17의 load cell 값을 check 해 줘",
    "¿Cuántos kilos pesa la carga?",
    "\n\n  the query begins and ends with blank lines\n\n",
    "[INST] pay </s> the <s> invoice [/INST][TOOL_CALLS]",
]


def catalog() -> Catalog:
    weigh = Parameter(name="mode", type="string", description="방식 – netto", enum=("net", "gross"), required=False)
    limit = Parameter(name="limit", type="number", unit="°C", dimension="temperature", required=True)
    mass = OutputField(name="mass", type="number", unit="kg", dimension="mass")
    return Catalog(
        [
            Capability(
                provider="fleet", operation="weigh", description="Wägt.", effect="read", parameters=(weigh, limit)
            ),
            Capability(provider="fleet", operation="locate", description="場所", effect="read", outputs=(mass,)),
            Capability(provider="lab", operation="note", description="", effect="write", parameters=(weigh,)),
        ],
        name="small",
    )


CATALOG = catalog()
WHOLE = load_catalog(Path(surface.__file__).parent / "catalog")
Step = str | tuple[str, dict[str, Any], dict[str, Any]]


def ours(query: str, steps: Sequence[Step]) -> list[Message]:
    messages = [Message("user", query)]
    for turn, step in enumerate(steps, start=1):
        if isinstance(step, str):
            messages += [Message("assistant", REQUEST_MORE_TOOLS), Message("user", TASK_INCOMPLETE)]
        else:
            name, arguments, payload = step
            call_id = f"call{turn:05d}"
            messages.append(Message("call", call_text(name, arguments, call_id)))
            messages.append(Message("result", result_text(payload, call_id)))
    return messages


def theirs(system: str, query: str, steps: Sequence[Step], tools: Sequence[dict[str, Any]]) -> int:
    messages: list[Any] = [SystemMessage(content=system), UserMessage(content=query)]
    for turn, step in enumerate(steps, start=1):
        if isinstance(step, str):
            messages += [AssistantMessage(content=REQUEST_MORE_TOOLS), UserMessage(content=TASK_INCOMPLETE)]
        else:
            name, arguments, payload = step
            call_id = f"call{turn:05d}"
            function = FunctionCall(name=name, arguments=json.dumps(arguments, sort_keys=True))
            messages.append(AssistantMessage(content=None, tool_calls=[ToolCall(id=call_id, function=function)]))
            messages.append(ToolMessage(name=name, content=json.dumps(payload, sort_keys=True), tool_call_id=call_id))
    request: ChatCompletionRequest[Any] = ChatCompletionRequest(
        messages=messages, tools=[Tool.model_validate(tool) for tool in tools] or None
    )
    return len(REFERENCE.encode_chat_completion(request).tokens)


def schemas(chosen: Catalog, routes: Sequence[str]) -> list[dict[str, Any]]:
    return [chosen[route].tool_schema for route in routes]


def agrees(system: str, query: str, steps: Sequence[Step], routes: Sequence[str], chosen: Catalog = CATALOG) -> bool:
    counter = TokenCounter()
    total = counter.conversation(system, ours(query, steps)) + counter.tools(chosen, routes)
    return total == theirs(system, query, steps, schemas(chosen, routes))


HISTORY: list[Step] = [
    ASK,
    ("fleet__weigh", {"limit": 12.5, "mode": "net"}, {"mass": 41, "unit": "kg", "note": "설비 확인 완료"}),
    ("fleet__locate", {}, {"status": "error", "error": "lease_expired: 契約が切れました"}),
    ASK,
    ASK,
    ("lab__note", {"mode": "総重量"}, {"rows": [1, 2.50, None, True, {"ä": '\n\t"\\'}]}),
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("length", range(len(HISTORY) + 1))
def test_every_turn_of_a_conversation_is_counted_as_the_tokenizer_encodes_it(query: str, length: int) -> None:
    for routes in ([], ["lab.note"], ["fleet.locate", "fleet.weigh", "lab.note"]):
        assert agrees(SYSTEM_PROMPT, query, HISTORY[:length], routes)


payloads = st.dictionaries(free_text, json_values, max_size=3)
steps = st.just(ASK) | st.tuples(st.sampled_from(["fleet__weigh", "lab__note"]), payloads, payloads)


@laws(60)
@given(
    query=st.sampled_from(QUERIES) | free_text.filter(bool),
    system=free_text.filter(bool) | st.just(SYSTEM_PROMPT),
    history=st.lists(steps, max_size=5),
    routes=st.lists(st.sampled_from(CATALOG.route_ids), unique=True),
)
def test_any_conversation_is_counted_as_the_tokenizer_encodes_it(
    query: str, system: str, history: list[Step], routes: list[str]
) -> None:
    assert agrees(system, query, history, routes)


@pytest.mark.parametrize("count", [0, 1, 5, 20])
def test_the_tools_of_the_surface_are_counted_as_the_tokenizer_encodes_them(count: int) -> None:
    routes = WHOLE.route_ids[:: max(len(WHOLE) // max(count, 1), 1)][:count]
    assert len(routes) == count
    assert agrees(SYSTEM_PROMPT, QUERIES[1], HISTORY, routes, WHOLE)


@laws(40)
@given(history=st.lists(steps, max_size=3), routes=st.lists(st.sampled_from(CATALOG.route_ids), unique=True))
def test_tools_add_the_same_to_every_prompt(history: list[Step], routes: list[str]) -> None:
    chosen = schemas(CATALOG, routes)
    added = theirs(SYSTEM_PROMPT, QUERIES[0], history, chosen) - theirs(SYSTEM_PROMPT, QUERIES[0], history, [])
    assert TokenCounter().tools(CATALOG, routes) == added


def test_no_tools_cost_nothing_and_more_tools_cost_more() -> None:
    counter = TokenCounter()
    costs = [counter.tools(CATALOG, CATALOG.route_ids[:count]) for count in range(4)]
    assert costs[0] == 0
    assert costs == sorted(set(costs))


def test_a_count_is_kept_for_its_own_catalog_and_tools_alone() -> None:
    first = Capability(provider="a", operation="b", description="short", effect="read")
    longer = first.model_copy(update={"description": "a much longer description of the very same route"})
    counter = TokenCounter()
    small, large = Catalog([first], name="x"), Catalog([longer], name="x")
    for _ in range(2):
        assert counter.tools(small, ["a.b"]) == TokenCounter().tools(small, ["a.b"])
        assert counter.tools(large, ["a.b"]) == TokenCounter().tools(large, ["a.b"])
    assert counter.tools(small, ["a.b"]) < counter.tools(large, ["a.b"])


@laws(40)
@given(history=st.lists(steps, max_size=4), query=st.sampled_from(QUERIES))
def test_a_counter_that_has_counted_before_counts_the_same(history: list[Step], query: str) -> None:
    used = TokenCounter()
    growing = [used.conversation(SYSTEM_PROMPT, ours(query, history[:at])) for at in range(len(history) + 1)]
    fresh = [TokenCounter().conversation(SYSTEM_PROMPT, ours(query, history[:at])) for at in range(len(history) + 1)]
    assert growing == fresh
    assert growing == sorted(set(growing))


def test_every_text_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []

    class Counting:
        def encode_ordinary(self, text: str) -> list[int]:
            encoded.append(text)
            return list(range(len(text)))

    monkeypatch.setattr("schemarouter.tokens._tekken", Counting)
    counter = TokenCounter()
    for _ in range(3):
        assert counter.text("abc") == 3
        assert counter.tools(CATALOG, ["lab.note"]) > 2
        counter.conversation("s", [Message("user", "abc")])
    assert sorted(encoded)[-1] == "s\n\nabc"
    assert len(encoded) == len(set(encoded)) == 3


@pytest.mark.parametrize("text", ["", "a", "설비", "荷重", "\U0001f600", "\x00", "</s>", "a " * 500])
def test_a_text_is_counted_as_the_tokenizer_encodes_it(text: str) -> None:
    tokenizer = REFERENCE.instruct_tokenizer.tokenizer
    assert TokenCounter().text(text) == len(tokenizer.encode(text, bos=False, eos=False))


def no_tokenizer() -> Any:
    raise AssertionError("the tokenizer was loaded")


@laws(20, HealthCheck.function_scoped_fixture)
@given(history=st.lists(steps, max_size=3), routes=st.lists(st.sampled_from(CATALOG.route_ids), unique=True))
def test_kept_counts_are_the_tokenizers_and_need_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: list[Step], routes: list[str]
) -> None:
    messages = ours(QUERIES[1], history)
    plain, keeping = TokenCounter(), TokenCounter(cached_counts(tmp_path))
    expected = plain.conversation(SYSTEM_PROMPT, messages), plain.tools(CATALOG, routes)
    assert (keeping.conversation(SYSTEM_PROMPT, messages), keeping.tools(CATALOG, routes)) == expected
    with monkeypatch.context() as patch:
        patch.setattr("schemarouter.tokens._tekken", no_tokenizer)
        later = TokenCounter(cached_counts(tmp_path))
        assert (later.conversation(SYSTEM_PROMPT, messages), later.tools(CATALOG, routes)) == expected


def test_a_counter_without_a_store_counts_anew_whatever_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEMAROUTER_CACHE", str(tmp_path))
    cached_counts().put("lease", (10**6).to_bytes(8, "little"))
    assert TokenCounter(cached_counts()).text("lease") == 10**6
    assert TokenCounter().text("lease") < 10


def test_counts_of_another_version_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached_counts(tmp_path).put("lease", (10**6).to_bytes(8, "little"))
    monkeypatch.setattr("schemarouter.tokens.version", lambda library: f"another {library}")
    assert cached_counts(tmp_path).get("lease") is None


def test_a_missing_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(library: str) -> str:
        raise PackageNotFoundError(library)

    monkeypatch.setattr("schemarouter.tokens.version", missing)
    with pytest.raises(SchemaRouterError, match="pip install mistral-common"):
        cached_counts()


@pytest.mark.parametrize("missing", ["no package", "no file"])
def test_a_tokenizer_without_its_file_is_refused(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "no package":
        monkeypatch.setattr("schemarouter.tokens._PACKAGE", "no_such_package")
    else:
        monkeypatch.setattr("schemarouter.tokens._MODEL", "data/no_such_file.json")
    _tekken.cache_clear()
    with pytest.raises(SchemaRouterError, match="pip install mistral-common"):
        TokenCounter().text("lease")


@laws(40)
@given(routes=st.lists(st.sampled_from(WHOLE.route_ids), unique=True, max_size=12))
def test_any_tools_in_any_order_are_counted_as_the_tokenizer_encodes_their_list(routes: list[str]) -> None:
    text = json.dumps(schemas(WHOLE, routes), ensure_ascii=False)
    encoded = REFERENCE.instruct_tokenizer.tokenizer.encode(text, bos=False, eos=False)
    assert TokenCounter().tools(WHOLE, routes) == (len(encoded) + 2 if routes else 0)


hard_text = st.text(
    st.sampled_from(" {}[],\"\\'\n\t/ab\u0301설荷") | st.characters(exclude_categories=["Cs"]), max_size=8
)


@LAWS
@given(described=st.lists(hard_text, min_size=1, max_size=4))
def test_no_description_joins_two_tools(described: list[str]) -> None:
    items = [
        Capability(provider="a", operation=f"b{n}", description=text, effect="read") for n, text in enumerate(described)
    ]
    hard = Catalog(items, name="hard")
    text = json.dumps(schemas(hard, hard.route_ids), ensure_ascii=False)
    encoded = REFERENCE.instruct_tokenizer.tokenizer.encode(text, bos=False, eos=False)
    assert TokenCounter().tools(hard, hard.route_ids) == len(encoded) + 2
