"""A run directory of the first version: read like any other, and not gone on with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conditions.running.plan import WHOLE
from conditions.storage.run_directory import RUN_FILE, read_run
from conditions.storage.shards import ShardLine, count_episodes, read_shard, shard_name, split_line
from gates.aggregate import Aggregate, World, aggregate
from preregistration.protocol import load_protocol
from schemarouter.cli.render import print_episode, print_episodes
from schemarouter.errors import InvalidRunError
from schemarouter.records import decode, encode
from surface.loader import load_catalogs, load_surface
from tests.cli.program import copied, edit_run, files, inside, refused

STORED = Path(__file__).resolve().parents[1] / "fixtures" / "run-v1"
SHARD = shard_name(WHOLE)
COMMAND = ("--retriever", "bm25", "--task", "dev-en-01", "--catalog", "100", "--display", "none")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copied(STORED, tmp_path / "v1")


@pytest.fixture(scope="module")
def world() -> World:
    """The world of the run, which identities here and now are not asked of: they belong to the code of then."""
    protocol = load_protocol("development")

    def stored(run: Mapping[str, Any]) -> dict[str, Any]:
        return dict(run["identities"])

    return World(protocol, load_surface("development"), load_catalogs(protocol.catalogs), stored)


def test_what_is_stored_is_of_version_1_and_names_no_place() -> None:
    run, header = json.loads((STORED / RUN_FILE).read_bytes()), (STORED / SHARD).read_bytes().splitlines()[0]
    assert (run["schema_version"], json.loads(header)["header"]["schema_version"]) == (1, 1)
    assert run["provenance"]["argv"] == ["run", "--out", "runs/v1"]
    assert not {"limits", "resumed"} & {*run} and "repeats" not in run["plan"]


def test_its_header_is_read_with_what_it_left_unsaid() -> None:
    run = read_run(STORED)
    assert run["identities"]["catalog_view"] == "full" and run["plan"]["repeats"] == 1
    assert (run["limits"], run["resumed"]) == ({"episode_seconds": None}, [])


def test_its_records_are_read_and_written_to_the_same_bytes() -> None:
    lines = (STORED / SHARD).read_bytes().splitlines(keepends=True)[1:]
    read = [line for line in read_shard(STORED / SHARD) if isinstance(line, ShardLine)]
    assert len(lines) == len(read) == 5
    for line, told in zip(lines, read, strict=True):
        assert (told.record.schema_version, told.record.repeat, told.record.episode_id.count("#")) == (1, 1, 0)
        assert encode(told.record) == split_line(line, "here", 2)[1]
    with pytest.raises(InvalidRunError, match="schema_version 1 with repeat"):
        decode(
            split_line(lines[0], "here", 2)[1].replace(b'"schema_version":1', b'"repeat":1,"schema_version":1'), "here"
        )


def test_its_episodes_are_counted(folder: Path) -> None:
    assert count_episodes(folder).finished == 5
    assert inside("status", folder).out == "5/5 episodes, terminal\n"


def test_it_is_replayed_measured_and_shown(folder: Path, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    result: Aggregate = aggregate(folder, world)
    assert [(row.task, row.catalog, row.repeat) for row in result.rows] == [("dev-en-01", 100, 1)] * 5
    assert sum(row.figures.passed for row in result.select("ORACLE")) == 1
    print_episodes(result)
    print_episode(folder, "dev-en-01/100/ORACLE")
    told = capsys.readouterr().out
    assert told.count("dev-en-01") >= 5 and "completed" in told


def test_it_may_not_be_altered_either(folder: Path, world: World) -> None:
    data = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(data.replace(b'"input_tokens":', b'"input_tokens":1', 1))
    with pytest.raises(InvalidRunError, match="the digest chain is broken"):
        aggregate(folder, world)


@pytest.mark.parametrize("more", [(), ("--exploratory",)], ids=["plain", "exploratory"])
def test_going_on_in_it_is_refused_with_the_differences(more: tuple[str, ...], folder: Path) -> None:
    lines = (folder / SHARD).read_bytes().splitlines(keepends=True)
    (folder / SHARD).write_bytes(b"".join(lines[:3]))
    before = files(folder)
    told = refused(
        inside("run", "--out", folder, *COMMAND, *more),
        3,
        "another run",
        "schema_version: 1 there, 2 now",
        "provenance.code",
    )
    assert "go on with --exploratory" not in told
    assert files(folder) == before


def test_a_shard_of_it_under_a_header_of_now_is_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "now"
    assert inside("run", "--out", out, *COMMAND).code == 0
    shutil.copy(folder / SHARD, out)
    before = files(out)
    refused(inside("run", "--out", out, *COMMAND), 3, SHARD, "belongs to another run")
    assert files(out) == before


@pytest.mark.parametrize("version", [0, 3])
def test_versions_that_are_not_known_are_refused_by_number(version: int, folder: Path) -> None:
    edit_run(folder, schema_version=version)
    refused(inside("status", folder), 3, RUN_FILE, f"schema_version {version}")
