"""``run``: what it refuses, what it writes, and that it shows no outcome."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conditions.running import provenance
from conditions.running.plan import WHOLE, Unit
from conditions.running.runner import Runner
from conditions.storage.run_directory import RUN_FILE
from conditions.storage.shards import timing_name
from schemarouter.records import EpisodeRecord
from tests.cli.conftest import PATH, Copies
from tests.cli.program import (
    EPISODES,
    ROOT,
    SHARD_FILE,
    SMALL,
    aggregated,
    edit_run,
    environment,
    files,
    inside,
    outside,
    refused,
)

pytestmark = pytest.mark.slow

COUNTS = re.compile(r"\d+/\d+ episodes")
OTHER_CODE: dict[str, Any] = {
    "argv": [],
    "code": "0" * 64,
    "commit": None,
    "dirty": False,
    "packages": {},
    "python": "3.11.0",
}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--retriever", "bm26"), ("unknown retriever 'bm26'", "Did you mean 'bm25'?", "dense")),
        (("--retriever", "bm25(k=1)"), ("bm25: unknown argument 'k'", "Did you mean 'k1'?")),
        (("--retriever", "bm25("), ("position 5",)),
        (("--retriever", "rrf(bm25)"), ("rrf takes",)),
        (("--agent", "referense"), ("unknown agent 'referense'", "Did you mean 'reference'?")),
        (("--condition", "SR-5-STATICS"), ("unknown condition", "Did you mean 'SR-5-STATIC'?")),
        (("--condition", "FULL", "--condition", "full"), ("unknown condition 'full'",)),
        (("--catalog", "101"), ("unknown catalog '101'", "Did you mean '100'?")),
        (("--task", "dev-ko-1"), ("unknown task 'dev-ko-1'", "Did you mean 'dev-ko-1")),
        (("--limit", "0"), ("--limit", "got 0")),
        (("--limit", "-3"), ("--limit", "got -3")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) and value[0].startswith("--") else "",
)
def test_what_is_not_in_the_grid_is_refused_with_the_closest(
    arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    refused(inside("run", "--out", tmp_path / "out", "--display", "none", *arguments), 2, *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [(), ("--exploratory",), ("--limit", "1", "--exploratory")], ids=" ".join)
def test_the_frozen_surface_is_refused_with_the_reason(more: tuple[str, ...], tmp_path: Path) -> None:
    result = inside("run", "--out", tmp_path / "out", "--surface", "frozen", *more)
    refused(result, 3, "there is no frozen surface yet", "retired unscored", "--surface development")
    assert not (tmp_path / "out").exists()


def test_a_run_reports_counts_on_stderr_and_nothing_else(tmp_path: Path) -> None:
    result = inside("run", "--out", tmp_path / "out", *SMALL[:-1], "plain")
    assert (result.code, result.stdout) == (0, b"")
    *progress, last = result.err.splitlines()
    assert progress == [f"{done}/{EPISODES} episodes" for done in range(2, EPISODES + 1, 2)]
    assert last == f"{EPISODES} episodes in {tmp_path / 'out'}. Next: schemarouter gate {tmp_path / 'out'}"


def test_a_run_directory_holds_header_shard_and_wall_times(small: Path) -> None:
    assert {*files(small)} == {RUN_FILE, SHARD_FILE, timing_name(WHOLE)}
    assert (small / SHARD_FILE).read_bytes().count(b"\n") == 1 + EPISODES
    assert (small / timing_name(WHOLE)).read_bytes().count(b"\n") == EPISODES
    assert b"wall_ms" not in (small / SHARD_FILE).read_bytes()


@pytest.mark.parametrize(
    "name", ["a_file", "a_file/below", "a_file/below/deep", "n" * 300], ids=["file", "below", "deep", "long"]
)
def test_an_out_that_cannot_be_written_is_one_message(name: str, tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("mine")
    refused(inside("run", "--out", tmp_path / name, *SMALL), 3, tmp_path / name)
    assert files(tmp_path) == {"a_file": b"mine"}


@pytest.mark.parametrize("name", [RUN_FILE, SHARD_FILE, timing_name(WHOLE)])
def test_a_folder_in_the_place_of_a_file_is_one_message(name: str, copy: Copies) -> None:
    folder = copy(lines=3)
    (folder / name).unlink()
    (folder / name).mkdir()
    refused(inside("run", "--out", folder, *SMALL), 3, name)


def test_an_out_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    refused(inside("run", "--out", tmp_path, *SMALL), 3, tmp_path, "other files", "--out")
    assert files(tmp_path) == {"thesis.txt": b"mine"}


def test_the_same_command_again_changes_nothing(copy: Copies) -> None:
    folder = copy()
    before = files(folder)
    assert inside("run", "--out", folder, *SMALL).code == 0
    assert files(folder) == before


@pytest.mark.parametrize(("lines", "torn"), [(0, 0), (7, 1), (EPISODES - 1, 40)])
def test_the_same_command_finishes_what_is_partial(lines: int, torn: int, copy: Copies, small: Path) -> None:
    folder = copy(lines=lines, torn=torn)
    assert inside("run", "--out", folder, *SMALL).code == 0
    assert (folder / SHARD_FILE).read_bytes() == (small / SHARD_FILE).read_bytes()


@pytest.mark.parametrize(
    ("command", "differing"),
    [
        (("--retriever", "bm25", "--limit", "21"), ("plan.limit: 20 there, 21 now", "plan.episodes: 20 there, 21 now")),
        (("--retriever", "bm25(k1=2)", "--limit", "20"), ("identities.retriever", "k1=1.5", "k1=2")),
        (("--retriever", "bm25", "--limit", "20", "--agent", "reference(probe=false)"), ("identities.agent",)),
        (("--retriever", "bm25", "--limit", "20", "--condition", "FULL"), ("plan.conditions", "plan.fingerprint")),
    ],
    ids=["limit", "retriever", "agent", "condition"],
)
def test_another_command_on_the_same_directory_is_refused_with_the_differences(
    command: tuple[str, ...], differing: tuple[str, ...], copy: Copies
) -> None:
    folder = copy(lines=7)
    before = files(folder)
    message = refused(inside("run", "--out", folder, "--display", "none", *command), 3, "another run", *differing)
    assert "argv" not in message
    assert files(folder) == before


def test_a_run_of_other_code_is_refused_with_the_difference(copy: Copies) -> None:
    folder = copy(lines=7)
    run = inside("status", folder, "--json").json["stamp"]
    assert run.startswith("EXPLORATORY")
    edit_run(folder, provenance={**OTHER_CODE, "commit": "0" * 40, "python": "3.0"})
    refused(inside("run", "--out", folder, *SMALL), 3, "provenance.commit", "provenance.python: '3.0' there")


def test_a_run_whose_code_was_changed_since_is_refused(copy: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy(lines=7)
    before = files(folder)
    monkeypatch.setattr(provenance, "code_fingerprint", lambda root: "f" * 64)
    message = refused(inside("run", "--out", folder, *SMALL), 3, "provenance.code", f"{'f' * 64!r} now")
    assert message.count("provenance.") == 1
    assert files(folder) == before


def test_a_run_that_is_in_use_is_refused_by_run_and_counted_by_status(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, outcomes, counted = tmp_path / "out", [], []
    begun: list[Unit] = []
    run = Runner.run

    def running(self: Runner, unit: Unit, *, attempt: int = 1) -> EpisodeRecord:
        if len(begun) in (0, 7, EPISODES - 1):
            outcomes.append(inside("run", "--out", out, *SMALL))
            counted.append(inside("status", out, "--json").json["finished"])
        begun.append(unit)
        return run(self, unit, attempt=attempt)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "run", running)
        assert inside("run", "--out", out, *SMALL).code == 0
    for outcome in outcomes:
        refused(outcome, 3, out, f"in use by process {os.getpid()} on host", "since 20")
    assert (counted, len(outcomes)) == ([0, 7, EPISODES - 1], 3)
    assert (out / SHARD_FILE).read_bytes() == (small / SHARD_FILE).read_bytes()
    assert {*files(out)} == {RUN_FILE, SHARD_FILE, timing_name(WHOLE)}


@pytest.mark.parametrize("provenance", ["x", None], ids=["text", "missing"])
def test_a_header_without_provenance_is_refused_by_run(provenance: object, copy: Copies) -> None:
    folder = edit_run(copy(lines=7), provenance=provenance)
    refused(inside("run", "--out", folder, *SMALL), 3, "provenance")


def test_an_out_inside_the_checkout_can_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    monkeypatch.setenv("PATH", PATH)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(provenance, "ROOT", checkout.resolve())
    git = ["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    without = {name: value for name, value in os.environ.items() if name != "GIT_DIR"}
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *command], check=True, capture_output=True, env=without)
    assert provenance.provenance().dirty is False
    out = checkout / "mine"
    assert inside("run", "--out", out, *SMALL).code == 0
    before = files(out)
    again = inside("run", "--out", out, *SMALL)
    assert (again.code, files(out)) == (0, before), again.err
    (checkout / os.fsdecode(b"caf\xe9 \xed\x95\x9c")).write_text("a name that is no UTF-8")
    assert provenance.provenance().dirty is True


def test_a_git_that_fails_is_refused_and_not_taken_for_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.provenance().commit is None, "there is no git here to fail"
    monkeypatch.setenv("PATH", PATH)
    told = refused(inside("run", "--out", tmp_path / "out", *SMALL), 3, "git cannot say which code this is", "status")
    assert "not a git repository" in told and not (tmp_path / "out").exists()


def test_aggregate_counts_all_of_a_partial_grid(tmp_path: Path) -> None:
    chosen = ("--task", "dev-ko-02", "--task", "dev-en-01", "--condition", "FULL", "--condition", "SR-5-STATIC")
    result = inside(
        "run", "--out", tmp_path / "out", "--retriever", "bm25", "--display", "none", "--catalog", "100", *chosen
    )
    assert result.err.startswith("4 episodes in ")
    assert b'"expected": 4' in aggregated(tmp_path / "out")


def limited(out: Path, kilobytes: int) -> tuple[int, str]:
    """Run the small run in a process whose files cannot grow beyond that; how it ended and what it said."""
    program = shlex.join([sys.executable, "-m", "schemarouter", "run", "--out", str(out), *SMALL])
    command = ["bash", "-c", f"ulimit -f {kilobytes} && exec {program}"]
    done = subprocess.run(command, capture_output=True, env=environment(), cwd=ROOT, check=False)
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(("kilobytes", "name"), [(1, RUN_FILE), (40, SHARD_FILE)])
def test_a_full_disk_is_one_message_and_the_run_goes_on_later(
    kilobytes: int, name: str, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, said = limited(out, kilobytes)
    assert (code, said.count("error")) == (3, 1), said
    assert said.startswith("error: ") and f"{name}: cannot be written (File too large)" in said
    assert not [item.name for item in out.iterdir() if item.name.startswith(".")]
    if (out / SHARD_FILE).exists():
        assert (small / SHARD_FILE).read_bytes().startswith((out / SHARD_FILE).read_bytes())
        assert (out / SHARD_FILE).read_bytes().endswith(b"\n")
    again = inside("run", "--out", out, *SMALL)
    assert again.code == 0, again.err
    assert (out / SHARD_FILE).read_bytes() == (small / SHARD_FILE).read_bytes()


def test_wall_times_that_cannot_be_written_are_one_message_and_the_run_goes_on_later(
    small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / RUN_FILE).write_bytes((small / RUN_FILE).read_bytes())
    (out / timing_name(WHOLE)).symlink_to("/dev/full")
    message = refused(
        inside("run", "--out", out, *SMALL), 3, timing_name(WHOLE), "cannot be written (No space left on device)"
    )
    assert message.count(timing_name(WHOLE)) == 1
    (out / timing_name(WHOLE)).unlink()
    assert inside("run", "--out", out, *SMALL).code == 0
    assert (out / SHARD_FILE).read_bytes() == (small / SHARD_FILE).read_bytes()


def test_an_out_whose_name_is_no_unicode_is_run_into_and_printed_escaped(tmp_path: Path) -> None:
    out = tmp_path / "r\udcff"
    made = outside("run", "--out", out, "--retriever", "bm25", "--limit", "1", "--display", "none")
    assert (made.code, "Traceback" in made.err) == (0, False), made.err
    run = json.loads((out / RUN_FILE).read_bytes())
    assert run["provenance"]["argv"][2] == f"{tmp_path}/r\\udcff"


def test_a_run_over_another_view_of_the_catalogs_says_so_and_is_made_again_in_it(tmp_path: Path) -> None:
    tasks = ("--task", "dev-en-01", "--catalog", "100", "--condition", "SR-5-STATE-AWARE", "--display", "none")
    for view in ("full", "names-only"):
        made = inside("run", "--out", tmp_path / view, "--catalog-view", view, *tasks)
        assert made.code == 0, made.err
        assert inside("reproduce", tmp_path / view).code == 0
    header = json.loads((tmp_path / "names-only" / RUN_FILE).read_bytes())
    assert header["identities"]["catalog_view"] == "names-only"
    assert "another view of the catalogs" in header["stamp"]
    result = inside("run", "--out", tmp_path / "full", "--catalog-view", "names-only", *tasks)
    refused(result, 3, "identities.catalog_view", "'full'", "'names-only'")


def test_an_unknown_view_in_a_header_is_refused_by_name(copy: Copies) -> None:
    folder = copy()
    header = json.loads((folder / RUN_FILE).read_bytes())
    stamp = header["stamp"].replace(")", ", another view of the catalogs)")
    edit_run(folder, identities={**header["identities"], "catalog_view": "names_only"}, stamp=stamp)
    refused(inside("gate", folder), 3, "catalog_view: Input should be 'full' or 'names-only'")


def test_too_little_address_space_is_one_line_at_once() -> None:
    for megabytes in (100, 140):
        done = subprocess.run(
            ["bash", "-c", f"ulimit -v {megabytes << 10} && exec {sys.executable} -m schemarouter list retrievers"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 3 and done.stderr.count("\n") == 1
        assert f"the limit of {megabytes} MB address space" in done.stderr
