"""The audit of words: entries of the cross-lingual lexicon that frozen prompts use and development prompts do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemarouter.retrieval.evidence.lexicon import shared_lexicon
from schemarouter.retrieval.evidence.words import stem
from surface.audit.words import TermFinder, as_lines, catalog_text, new_words, report
from surface.loader import load_full_catalog, load_surface
from surface.task import Task, TaskPrompt
from tests.toys import CHAIN


def asking(task: str, language: str, query: str) -> Task:
    prompt = TaskPrompt.model_validate({"id": task, "language": language, "query": query})
    return Task(prompt=prompt, key=CHAIN.key)


@pytest.fixture
def finder(tmp_path: Path) -> TermFinder:
    lists = {
        "ko": {"주문": {"means": ["order"], "from": "catalog:orders.find_order"}},
        "en": {
            "order": {"means": ["order"], "from": "catalog:orders.find_order"},
            "order line": {"means": ["line"], "from": "catalog:orders.get_order_line"},
        },
    }
    for language, terms in lists.items():
        (tmp_path / f"{language}.json").write_text(json.dumps(terms), encoding="utf-8")
    return TermFinder(tmp_path)


def test_terms_are_found_by_the_rules_of_the_lexicon(finder: TermFinder) -> None:
    assert finder.found("The ORDER lines, an order", "en") == {("en", "order line"), ("en", "order")}
    assert finder.found("order line", "en") == {("en", "order line")}, "the longest term hides those inside"
    assert finder.found("이주문 order", "mixed") == {("ko", "주문"), ("en", "order")}
    assert finder.found("reorder", "en") == finder.found("order", "de") == frozenset()


@pytest.mark.slow
def test_what_is_found_is_what_the_lexicon_of_the_package_translates() -> None:
    packaged = TermFinder()
    for task in load_surface("development").tasks:
        query, language = task.prompt.query, task.prompt.language
        found = packaged.found(query, language)
        means = {stem(w) for key in found for mean in packaged.entries[key]["means"] for w in mean.casefold().split()}
        assert means == set(shared_lexicon().stems(query, language))


@pytest.mark.slow
def test_new_words_are_those_of_frozen_prompts_alone_with_source_tasks_and_whether_the_catalog_has_them() -> None:
    seen = asking("dev-en-01", "en", "a temperature")
    asked = asking("frz-en-01", "en", "Glucose at which temperature?"), asking("frz-en-02", "en", "glucose, ferry")
    words = {word.term: word for word in new_words([seen], asked, load_full_catalog())}
    assert set(words) == {"glucose", "ferry"}
    assert words["glucose"].tasks == ("frz-en-01", "frz-en-02")
    assert words["glucose"].source.startswith("catalog:clinlab.")
    assert (words["glucose"].in_catalog, words["ferry"].in_catalog) == (True, False)


def test_the_text_of_the_catalog_has_names_descriptions_and_units_as_words() -> None:
    text = catalog_text(load_full_catalog())
    assert all(f" {words} " in text for words in ("find employee", "km/h"))


def test_the_list_has_a_line_a_term() -> None:
    words = {"en": {"ferry": {"from": "catalog:a.b", "tasks": ["frz-en-02"], "in_catalog": False}}}
    lines = as_lines(words).decode().splitlines()
    assert lines[2].strip() == '"ferry": {"from":"catalog:a.b","tasks":["frz-en-02"],"in_catalog":false}'
    assert json.loads(as_lines(words)) == words


def test_without_frozen_tasks_the_list_is_empty() -> None:
    assert load_surface("frozen").tasks == () and report() == {}
