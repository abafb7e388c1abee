"""What contributors read is true."""

from __future__ import annotations

import re
import subprocess

from schemarouter import __version__
from tests.cli.program import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_bare_make_tells_every_target() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    printed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^make (\w+) +\S", printed, re.MULTILINE) == phony.split()


def test_the_citation_names_the_version_that_is_here() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_every_file_and_folder_that_newcomers_are_sent_to_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.-]+/)+(?:[\w.-]+\.\w+)?)`", text) + re.findall(r"\]\(([^)#]+)\)", text)
    assert len(named) >= 25
    inner = ("", "schemarouter", "conditions", "gates")
    assert [name for name in named if not any((ROOT / room / name).exists() for room in inner)] == []
