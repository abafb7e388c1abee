"""The examples do what they show, from any folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import ROOT, environment

pytestmark = pytest.mark.slow


def printed(example: str, folder: Path) -> str:
    """What an example prints."""
    command = [sys.executable, str(ROOT / "examples" / example)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_loop_of_ones_own_comes_to_its_end_under_the_state_aware_condition_alone(tmp_path: Path) -> None:
    steps = ("orders.find", "people.profile", "outbox.write")
    fates = {"SR-5-STATIC": ("called", "NOT SHOWN", "NOT SHOWN"), "SR-5-STATE-AWARE": ("called", "called", "called")}
    assert printed("own_loop.py", tmp_path).splitlines() == [
        f"{name}: {step} {fate}" for name, told in fates.items() for step, fate in zip(steps, told, strict=True)
    ]


def test_a_loop_of_ones_own_is_forty_lines() -> None:
    assert len((ROOT / "examples" / "own_loop.py").read_text(encoding="utf-8").splitlines()) <= 40


def test_a_retriever_of_ones_own_finds_more_misspelt_requests_than_bm25(tmp_path: Path) -> None:
    rows = re.findall(r"^(\S+) +(as written|misspelt) +(\d+)/15$", printed("own_retriever.py", tmp_path), re.MULTILINE)
    found = {(spec, spelling): int(hits) for spec, spelling, hits in rows}
    assert len(found) == 6
    assert found["ngrams", "misspelt"] > found["bm25", "misspelt"] > 0
    assert found["rrf(bm25,ngrams)", "as written"] > found["bm25", "as written"]
