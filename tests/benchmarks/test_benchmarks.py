"""The benchmarks run, compare like with like and say what they measured; how long anything takes is never asserted."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner

import benchmarks.__main__ as program
from benchmarks import lexical
from benchmarks.corpora import QUERY_TERMS, unit_vectors, zipf_corpus
from benchmarks.timing import Effort, alternate
from schemarouter.errors import SchemaRouterError

pytestmark = pytest.mark.slow

TINY = program.Scale((100,), 100, Effort(rounds=1, seconds=0.0, burst=2), 64, 3)


def test_a_corpus_is_the_same_again_and_its_queries_hold_rare_terms_alone() -> None:
    corpus = zipf_corpus(100, 20)
    assert corpus == zipf_corpus(100, 20)
    holders = [set(document) for document in corpus.documents]
    for query in corpus.queries:
        assert len(set(query)) == len(query) == QUERY_TERMS
        assert all(2 * sum(term in document for document in holders) < 100 for term in query)
        assert any(set(query) <= document for document in holders)


def test_vectors_are_the_same_again_and_of_length_one() -> None:
    vectors = unit_vectors(5, 3)
    assert vectors.tobytes() == unit_vectors(5, 3).tobytes() != unit_vectors(5, 4).tobytes()
    assert (vectors * vectors).sum(axis=1) == pytest.approx([1.0] * 5, abs=1e-5)


def test_all_systems_get_the_same_items_and_take_turns() -> None:
    calls: list[str] = []
    times = alternate({"a": lambda item: calls.append(f"a{item}"), "b": lambda item: calls.append(f"b{item}")}, [1, 2, 3],
                      Effort(rounds=2, seconds=9.0, burst=2))  # fmt: skip
    assert calls == ["a1", "b1", "a1", "a2", "b1", "b2", "b3", "b1", "a3", "a1"]
    assert {name: len(measured) for name, measured in times.items()} == {"a": 4, "b": 4}


def test_systems_that_rank_differently_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexical, "_best_of", lambda scores: (scores.argsort()[:10], scores[scores.argsort()[:10]]))
    with pytest.raises(SchemaRouterError, match=r"rank-bm25 ranks 'w.* differently"):
        lexical.lexical_rows(100, TINY.effort, 64)


def test_the_quick_run_prints_every_comparison_and_writes_it_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "QUICK", TINY)
    app = typer.Typer()
    app.command()(program.main)
    result = CliRunner().invoke(app, ["--quick", "--json", str(tmp_path / "results.json")])
    assert result.exit_code == 0, result.output
    written = orjson.loads((tmp_path / "results.json").read_bytes())
    assert written["schema_version"] == 1 and written["environment"]["packages"]["numpy"]
    by_table: dict[str, list[str]] = {}
    for row in written["rows"]:
        by_table.setdefault(row["table"], []).append(row["system"])
        assert row["entries"] == (2700 if row["table"].startswith("gate") else 100) and row["calls"] > 0
        assert 0 < row["best_ms"] <= row["median_ms"] and row["ratio"] > 0
        assert row["table"] in result.stdout
    assert [titles.split(",")[0] for titles in by_table] == [
        "BM25", "dense", "gate over an aggregate", "opening call", "opening call", "refresh call", "whole episodes",
    ]  # fmt: skip
    assert by_table["BM25, one query, top 10"][:3] == ["schemarouter", "rank-bm25", "bm25s"]
