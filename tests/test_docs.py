"""What the documents say of the code: paths exist, names can be imported, fields are all described, code runs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import get_args

import pytest

from conditions.storage.run_directory import RunHeader, ShardHeader
from gates.aggregate import Aggregate
from gates.verdict import Verdict
from schemarouter.records import Event, Reason
from tests.markdown import ROOT, code_blocks

PAGES = sorted(path for part in ("*.md", "howto/*.md", "reference/*.md") for path in (ROOT / "docs").glob(part))
DOCUMENTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FOLDERS = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")))
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./*-]*[\w*/]")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")
TERM = re.compile(r"^\| ([^|]+) \| [^|]+\. \| `([\w.]+)` \|$", re.MULTILINE)
STEP = re.compile(r"^(\d+)\. `([\w/]+)\.py` — `([\w.]+)`:", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TERMS = TERM.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
STEPS = STEP.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    paths = {ROOT / path for path in PATH.findall(text) if not path.startswith("runs/")}
    links = {document.parent / path for path, _ in LINK.findall(text) if path}
    assert [str(path) for path in paths | links if not any(ROOT.glob(str(path.resolve().relative_to(ROOT))))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_part_of_a_document_that_a_link_goes_to_exists(document: Path) -> None:
    for path, anchor in LINK.findall(document.read_text(encoding="utf-8")):
        if anchor:
            target = (document.parent / path if path else document).read_text(encoding="utf-8")
            assert anchor[1:] in {title.lower().replace(" ", "-") for title in HEADING.findall(target)}


def test_the_glossary_is_in_order_and_each_row_is_read() -> None:
    rows = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").count("\n| ") - 1
    terms = [term.casefold() for term, _ in TERMS]
    assert len(terms) == rows > 40
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(("term", "where"), TERMS, ids=[term for term, _ in TERMS])
def test_the_name_that_the_glossary_gives_for_a_term_can_be_imported(term: str, where: str) -> None:
    assert resolve_name(where) is not None, term


def test_the_way_of_a_query_leads_through_functions_that_exist() -> None:
    assert [int(number) for number, _, _ in STEPS] == [*range(1, len(STEPS) + 1)] and len(STEPS) > 20
    for _, path, name in STEPS:
        assert callable(resolve_name(f"{path.replace('/', '.')}.{name}"))


def test_every_field_of_the_documents_of_a_run_is_described() -> None:
    text = (ROOT / "docs" / "run-directory.md").read_text(encoding="utf-8")
    parts = {line.partition("`")[2].partition("`")[0]: line for line in re.split(r"\n(?=`\w+` ?\()", text)}
    for document in (RunHeader, ShardHeader, Aggregate, Verdict):
        described = parts[document.__name__].partition("\n## ")[0]
        assert [name for name in document.model_fields if f"`{name}`" not in described] == [], document.__name__


def test_every_event_and_field_of_a_record_is_described() -> None:
    text = (ROOT / "docs" / "run-directory.md").read_text(encoding="utf-8")
    rows = {kind: row for row, kind in re.findall(r"^(\| `(\w+)` \| .+)$", text, re.MULTILINE)}
    for event in get_args(get_args(Event)[0]):
        row = rows[{item.name: item.default for item in fields(event)}["type"]]
        names = {item.name for item in fields(event)} - {"turn", "type"}
        assert {name for name in names if f"`{name}`" not in row} == set(), event.__name__
        assert set(get_args(Reason)) <= set(re.findall(r"`(\w+)`", rows["ended"]))


@pytest.mark.slow
def test_the_code_of_the_page_on_running_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = (body for language, body in code_blocks(ROOT / "docs" / "running.md") if language == "python")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/running.md", "exec"), {})
    printed = capsys.readouterr().out
    assert (
        printed.startswith("40 of 40 episodes\n1 task pass") and "\nEXPLORATORY (development surface, part" in printed
    )
