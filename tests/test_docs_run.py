"""What tutorial and how-to pages show works as written, block after block."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

from conditions.registry import CONDITIONS
from schemarouter.agents.registry import AGENTS
from schemarouter.retrieval.registry import RETRIEVERS
from tests.cli.program import inside
from tests.markdown import ROOT, code_blocks, run_command

DOCS = ROOT / "docs"
PAGES = [DOCS / "tutorial.md", *sorted((DOCS / "howto").glob("*.md"))]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs_and_prints_what_the_page_quotes(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    written = ModuleType("written")
    monkeypatch.setitem(sys.modules, written.__name__, written)
    ran, printed = 0, ""
    with mock.patch.dict(RETRIEVERS), mock.patch.dict(AGENTS), mock.patch.dict(CONDITIONS):
        for language, body in code_blocks(page):
            if language == "python":
                exec(compile(body, page.name, "exec"), written.__dict__)
            elif language == "bash":
                printed = "".join(output_of(command, tmp_path) for command in body.splitlines())
            elif ran:
                quoted = [part for line in body.splitlines() for part in line.split("…")]
                assert [part for part in quoted if plain(part) not in plain(printed)] == []
            ran += language in ("python", "bash")
    assert ran >= 2


def output_of(command: str, folder: Path) -> str:
    """What a command prints; a gate that fails is a result."""
    done = run_command(command, folder)
    assert done.returncode == (1 if "schemarouter gate" in command else 0), (command, done.stderr)
    return done.stdout


def plain(text: str) -> str:
    """Text however its lines were broken."""
    return " ".join(text.split())


def test_the_reference_of_the_command_line_has_every_command_with_its_options() -> None:
    page = runpy.run_path(str(DOCS / "conf.py"))["command_line"]()
    sections = dict(re.findall(r"^## schemarouter (.+?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    for group in ("", "lock", "list", "state"):
        overview = inside(*filter(None, [group]), "--help").out.partition("Commands")[2]
        for name in re.findall(r"^│ ([a-z]+) ", overview, re.MULTILINE):
            named = f"{group} {name}".strip()
            said = inside(*named.split(), "--help").out
            options = set(re.findall(r"^│[ *]+(--?[a-z-]+)", said, re.MULTILINE)) - {"--help"}
            assert options <= set(re.findall(r"^- `(--?[a-z-]+)", sections[named], re.MULTILINE)), named
