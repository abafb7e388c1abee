"""``status``: counts only, on whatever stands in a run directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemarouter.experiment import load_complete_run
from tests.cli.conftest import Copies
from tests.cli.program import EPISODES, SHARD_FILE, files, inside, refused

OUTCOMES = re.compile(
    r"pass|fail|recall|recover|completed|completion|stall|token|miss|verdict|reason|step|turn|SR-|ORACLE|dev-", re.I
)


@pytest.mark.parametrize(
    ("lines", "torn", "finished"),
    [(0, 0, 0), (0, 30, 0), (7, 0, 7), (7, 1, 7), (7, 200, 7), (EPISODES - 1, 60, EPISODES - 1), (EPISODES, 0, EPISODES)],
)  # fmt: skip
def test_status_counts_whole_lines_and_shows_no_outcome(lines: int, torn: int, finished: int, copy: Copies) -> None:
    folder = copy(lines=lines, torn=torn)
    before = files(folder)
    text, json = inside("status", folder), inside("status", folder, "--json")
    done = finished == EPISODES
    first, _, rest = text.out.partition("\n")
    assert first == f"{finished}/{EPISODES} episodes" + (", complete" if done else "")
    assert ("How episodes ended" in rest) is done and (rest == "") is not done
    assert json.json == {
        "stamp": "EXPLORATORY (development surface, part of the grid, another retriever or agent)",
        "finished": finished,
        "expected": EPISODES,
        "infrastructure_attempts": 0,
        "complete": done,
        "endings": load_complete_run(folder).aggregate().endings if done else None,
    }
    assert (text.code, text.err, json.code, json.err) == (0, "", 0, "")
    assert not OUTCOMES.search(first if done else text.out)
    assert files(folder) == before


def test_status_of_a_run_that_has_only_begun_is_nothing_of_all(copy: Copies) -> None:
    folder = copy()
    (folder / SHARD_FILE).unlink()
    assert inside("status", folder).out == f"0/{EPISODES} episodes\n"


def test_before_the_end_status_is_the_same_whatever_the_outcomes_are(copy: Copies, tmp_path: Path) -> None:
    other = tmp_path / "other"
    command = ("--retriever", "random(seed=3)", "--limit", str(EPISODES), "--display", "none")
    assert inside("run", "--out", other, *command).code == 0
    lines = (other / SHARD_FILE).read_bytes().splitlines(keepends=True)
    (other / SHARD_FILE).write_bytes(b"".join(lines[:-1]))
    folder = copy(lines=EPISODES - 1)
    assert (other / SHARD_FILE).read_bytes() != (folder / SHARD_FILE).read_bytes()
    for more in ((), ("--json",)):
        assert inside("status", other, *more).stdout == inside("status", folder, *more).stdout


def test_status_of_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    refused(inside("status", tmp_path / "nowhere"), 3, "does not exist", "no run directory")
    refused(inside("status", tmp_path), 3, "does not exist", "no run directory")
    (tmp_path / "file").write_text("x")
    refused(inside("status", tmp_path / "file"), 3, "cannot be read")


def test_status_of_a_shard_that_holds_no_records_names_the_line(copy: Copies) -> None:
    folder = copy(lines=2)
    with (folder / SHARD_FILE).open("ab") as shard:
        shard.write(b'{"an":"intruder"}\n')
    refused(inside("status", folder), 3, f"{SHARD_FILE}, line 4")
