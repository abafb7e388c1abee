"""``run`` and ``merge``: shards, workers, limits, displays, and resuming under other code."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conditions.running import provenance
from conditions.running.plan import Shard
from conditions.running.provenance import ROOT, code_fingerprint
from conditions.storage.run_directory import RUN_FILE, VERDICT_FILE
from conditions.storage.shards import shard_name
from schemarouter.cli.progress import Display, progress_display
from tests.cli.conftest import Copies
from tests.cli.program import SHARD_FILE, SMALL, aggregated, edit_run, files, inside, refused

pytestmark = pytest.mark.slow

GRID = ("--retriever", "bm25", "--catalog", "100", "--task", "dev-en-01", "--task", "dev-ko-02")
QUIET = ("--display", "none")
PRICES = "[reference]\ninput_per_million = 2.0\noutput_per_million = 8.0\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """aggregate.json of ten episodes that one process made."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert inside("run", "--out", folder, *GRID, *QUIET).code == 0
    return aggregated(folder)


# --- shards and workers ---------------------------------------------------------------------------------------------


def test_shards_made_apart_and_merged_are_the_run_of_one_process(tmp_path: Path, whole: bytes) -> None:
    apart = [tmp_path / f"part{index}" for index in (1, 2, 3)]
    for index, folder in enumerate(apart, start=1):
        made = inside("run", "--out", folder, *GRID, *QUIET, "--shard", f"{index}/3")
        expected = len(range(index, 11, 3))
        assert (made.code, made.err) == (
            0, f"{expected} episodes in {folder}. Next, with all shards in it: schemarouter gate {folder}\n",
        )  # fmt: skip
        assert inside("status", folder).out == f"{expected}/10 episodes\n"
    merged = inside("merge", *reversed(apart), "--out", tmp_path / "merged")
    next_step = f"3 shards in {tmp_path / 'merged'}. Next: schemarouter gate {tmp_path / 'merged'}\n"
    assert (merged.code, merged.stdout, merged.err) == (0, b"", next_step)
    assert aggregated(tmp_path / "merged") == whole
    assert inside("status", tmp_path / "merged").out.startswith("10/10 episodes, complete\n")


def test_shards_made_in_one_directory_are_the_run_of_one_process(tmp_path: Path, whole: bytes) -> None:
    out = tmp_path / "out"
    for index in (2, 1):
        assert inside("run", "--out", out, *GRID, *QUIET, "--shard", f"{index}/2").code == 0
    assert {shard_name(Shard(1, 2)), shard_name(Shard(2, 2))} < {*files(out)}
    assert aggregated(out) == whole
    before = files(out)
    refused(inside("run", "--out", out, *GRID, *QUIET), 3, "divided into other shards", "1/1", "--out")
    assert files(out) == before


def test_several_workers_make_the_run_of_one_process(tmp_path: Path, whole: bytes) -> None:
    out = tmp_path / "out"
    made = inside("run", "--out", out, *GRID, *QUIET, "--workers", "2")
    assert made.code == 0, made.err
    assert aggregated(out) == whole


# --- what is refused before anything is begun -----------------------------------------------------------------------

REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "shard 0/3": (("--shard", "0/3"), ("--shard", "K from 1 to N", "2/4", "'0/3'")),
    "shard 4/3": (("--shard", "4/3"), ("--shard", "K from 1 to N", "'4/3'")),
    "shard one": (("--shard", "one"), ("--shard", "K/N", "'one'")),
    "workers 0": (("--workers", "0"), ("--workers is a whole number from 1 to 10,000, got 0",)),
    "workers without end": (("--workers", "99999999999"), ("from 1 to 10,000, got 99999999999",)),
    "repeats without end": (
        ("--agent", "fallible", "--repeat", "99999999", "--limit", "5"), ("--repeat is at most 10,000, got 99,999,999",)
    ),
    "repeat 0": (("--repeat", "0"), ("--repeat is a whole number from 1, got 0",)),
    "repeat of what repeats itself": (
        ("--repeat", "2"), ("--repeat 2", "reference(order=ready,probe=true) takes no seed", "leave it out"),
    ),
    "no seconds": (("--episode-seconds", "0"), ("--episode-seconds must be more than 0", "0.0")),
    "seconds nan": (("--episode-seconds", "nan"), ("--episode-seconds must be more than 0", "nan")),
    "seconds beyond timers": (("--episode-seconds", "1e300"), ("at most 1,000,000, got 1e+300",)),
    "seconds inf": (("--episode-seconds", "inf"), ("--episode-seconds must be more than 0", "inf")),
    "no tokens": (("--max-tokens", "0"), ("--max-tokens must be more than 0, got 0",)),
    "cost without prices": (("--max-cost", "1"), ("--max-cost needs --prices",)),
    "address alone": (("--address", "127.0.0.1:1"), ("--address", "--engine ray")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_cannot_be_is_one_message_with_the_remedy(name: str, tmp_path: Path) -> None:
    options, words = REFUSED[name]
    refused(inside("run", "--out", tmp_path / "out", *GRID, *QUIET, *options), 2, *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [("--display", "loud"), ("--engine", "steam")], ids=" ".join)
def test_an_option_of_no_known_value_is_refused_with_what_it_may_be(options: tuple[str, str], tmp_path: Path) -> None:
    result = inside("run", "--out", tmp_path / "out", *GRID, *options)
    assert (result.code, result.stdout) == (2, b"") and "Traceback" not in result.err
    words = (*options, {"--display": "json", "--engine": "ray"}[options[0]])
    assert [word for word in words if word not in result.err] == []
    assert not (tmp_path / "out").exists()


TABLES: dict[str, tuple[bytes | None, tuple[str, ...]]] = {
    "no file": (None, ("cannot be read (No such file or directory)",)),
    "no TOML": (b"[reference\n", ("no TOML",)),
    "no text": (b"\xff\xfe", ("no TOML",)),
    "another agent": (b"[referense]\ninput_per_million = 1\noutput_per_million = 1\n",
                      ("no price of the agent 'reference'", "Did you mean 'referense'?", "Add a table [reference]")),
    "half a price": (b"[reference]\ninput_per_million = 1\n", ("[reference]", "output_per_million")),
    "below zero": (b"[reference]\ninput_per_million = -1\noutput_per_million = 1\n", ("[reference]", "input_per_million")),
    "without end": (b"[reference]\ninput_per_million = inf\noutput_per_million = 1\n", ("input_per_million",)),
    "a word": (b"[reference]\ninput_per_million = 'two'\noutput_per_million = 1\n", ("input_per_million",)),
    "one more": (PRICES.encode() + b"per_call = 1\n", ("[reference]", "per_call")),
    "no table": (b"reference = 3\n", ("[reference]",)),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_prices_that_is_none_is_one_message(name: str, tmp_path: Path) -> None:
    content, words = TABLES[name]
    table = tmp_path / "prices.toml"
    if content is not None:
        table.write_bytes(content)
    options = ("--max-cost", "1", "--prices", table)
    refused(inside("run", "--out", tmp_path / "out", *GRID, *QUIET, *options), 2, table, *words)
    assert not (tmp_path / "out").exists()


def test_a_table_of_prices_that_is_a_folder_is_one_message(tmp_path: Path) -> None:
    result = inside("run", "--out", tmp_path / "out", *GRID, "--max-cost", "1", "--prices", tmp_path)
    refused(result, 2, tmp_path, "cannot be read (Is a directory)")


def test_a_cluster_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    address = ("--engine", "ray", "--address", "127.0.0.1:1")
    refused(inside("run", "--out", tmp_path / "out", *GRID, *QUIET, *address), 3, "Ray at 127.0.0.1:1 cannot be used")


def test_ray_that_is_not_installed_is_one_message_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = inside("run", "--out", tmp_path / "out", *GRID, *QUIET, "--engine", "ray")
    refused(result, 3, "Ray is not installed", "pip install 'schemarouter-research[ray]'")


# --- limits on tokens and cost --------------------------------------------------------------------------------------


def stopped(out: Path, *options: object) -> int:
    """Assert that a run stopped at a limit, with one message; how many episodes it made."""
    error = refused(inside("run", "--out", out, *GRID, *QUIET, *options), 3, "stopped at", "higher limit resumes")
    found = re.search(r"(\d+) of 10 episodes done", error)
    assert found is not None
    finished = int(found[1])
    assert inside("status", out).out == f"{finished}/10 episodes\n"
    return finished


def test_a_run_stops_at_its_tokens_and_a_higher_limit_goes_on_to_the_same_end(tmp_path: Path, whole: bytes) -> None:
    out = tmp_path / "out"
    first = stopped(out, "--max-tokens", "1")
    assert first == 1
    assert stopped(out, "--max-tokens", "1") == 1, "what was used before counts"
    assert 1 < stopped(out, "--max-tokens", "20000") < 10
    last = inside("run", "--out", out, *GRID, *QUIET, "--max-tokens", "100000000")
    assert last.code == 0, last.err
    assert aggregated(out) == whole
    assert inside("run", "--out", out, *GRID, *QUIET, "--max-tokens", "1").code == 0, "nothing is left to be spent on"
    # Two episodes for each worker are out when the first comes back.
    assert 1 <= stopped(tmp_path / "two", "--max-tokens", "1", "--workers", "2") <= 4


def test_a_run_stops_at_its_cost_and_a_higher_limit_goes_on_to_the_same_end(tmp_path: Path, whole: bytes) -> None:
    out, table = tmp_path / "out", tmp_path / "prices.toml"
    table.write_text(PRICES)
    first = stopped(out, "--max-cost", "0.000001", "--prices", table)
    assert first == 1
    refused(
        inside("run", "--out", out, *GRID, *QUIET, "--prices", table), 2, "--prices has no effect without --max-cost"
    )
    assert 1 < stopped(out, "--max-cost", "0.04", "--prices", table, "--workers", "1") < 10
    assert inside("run", "--out", out, *GRID, *QUIET, "--max-cost", "1000", "--prices", table).code == 0
    assert aggregated(out) == whole


# --- progress -------------------------------------------------------------------------------------------------------


class Clock:
    """Stands for time.monotonic: stands still until it is advanced."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("schemarouter.cli.progress.time.monotonic", made)
    return made


def events(err: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in err.splitlines()]


def test_json_progress_is_counts_alone_from_start_to_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = inside("run", "--out", out, *GRID, "--display", "json")
    assert (made.code, made.stdout) == (0, b"")
    reported = events(made.err)
    assert reported[0]["event"] == "start" and reported[-1]["event"] == "end"
    assert {event["event"] for event in reported[1:-1]} <= {"progress"}
    keys = {"event", "finished", "expected", "episodes_per_second", "seconds_left"}
    assert all({*event} == keys and event["expected"] == 10 for event in reported)
    assert (reported[0]["finished"], reported[-1]["finished"]) == (0, 10)
    assert [event["finished"] for event in reported] == sorted(event["finished"] for event in reported)


def test_json_progress_is_reported_at_most_once_a_second(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display(Display.json) as show:
        for done in range(101):
            clock.now = 100.0 + done / 8
            show(done, 100)
    reported = events(capsys.readouterr().err)
    assert [event["finished"] for event in reported] == [*range(0, 97, 8), 100]
    assert [event["event"] for event in reported] == ["start", *["progress"] * 12, "end"]
    assert reported[1] == {
        "event": "progress", "finished": 8, "expected": 100, "episodes_per_second": 8.0, "seconds_left": 11.5,
    }  # fmt: skip


def test_json_progress_of_a_run_that_goes_on_counts_its_pace_from_there(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_display(Display.json) as show:
        show(60, 100)
        clock.now += 2.0
        show(70, 100)
    start, middle, _ = events(capsys.readouterr().err)
    assert (start["finished"], start["episodes_per_second"], start["seconds_left"]) == (60, None, None)
    assert (middle["episodes_per_second"], middle["seconds_left"]) == (5.0, 6.0)


def test_json_progress_ends_with_an_event_whatever_ended_the_run(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing() -> None:
        with progress_display(Display.json) as show:
            show(0, 9)
            show(4, 9)
            raise KeyError("x")

    with pytest.raises(KeyError):
        failing()
    last = events(capsys.readouterr().err)[-1]
    assert (last["event"], last["finished"]) == ("end", 4)


def test_a_clock_that_stands_still_divides_by_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display(Display.json) as show:
        for done in range(3):
            show(done, 2)
    assert {event["episodes_per_second"] for event in events(capsys.readouterr().err)} == {None}


def test_a_terminal_is_shown_a_bar_with_counts_and_pace(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "rich.console.Console", lambda stderr: Console(file=screen, force_terminal=True, width=120, color_system=None)
    )
    with progress_display(None) as show:
        show(0, 40)
        clock.now += 4.0
        show(30, 40)
    assert "episodes" in screen.getvalue() and "30/40" in screen.getvalue() and "7.5/s" in screen.getvalue()


@pytest.mark.parametrize("display", [Display.json, Display.plain, Display.rich])
def test_a_display_that_cannot_be_written_is_dropped(display: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    shown = []
    with progress_display(display) as show:
        for done in range(3):
            show(done, 2)
            shown.append(done)
    assert shown == [0, 1, 2]


# --- resuming under other code ---------------------------------------------------------------------------------------

OTHER = "0" * 64


def under_other_code(folder: Path) -> dict[str, Any]:
    """Make a run one that was begun under other code; the provenance that it then has."""
    provenance = {**json.loads((folder / RUN_FILE).read_bytes())["provenance"], "code": OTHER}
    edit_run(folder, provenance=provenance)
    return provenance


def test_without_asking_other_code_is_refused_with_the_difference_and_the_way_on(copy: Copies) -> None:
    folder = copy(lines=7)
    under_other_code(folder)
    before = files(folder)
    message = refused(inside("run", "--out", folder, *SMALL), 3, "another run", "--out", "resume it with --exploratory")
    lines = [line.strip() for line in message.splitlines() if line.startswith("  ")]
    assert len(lines) == 1 and lines[0].startswith(f"provenance.code: {OTHER!r} there, ")
    assert files(folder) == before


def test_asked_for_a_run_goes_on_under_other_code_stamped_and_with_its_history(copy: Copies, small: Path) -> None:
    folder = copy(lines=7)
    begun = under_other_code(folder)
    made = inside("run", "--out", folder, *SMALL, "--exploratory")
    assert made.code == 0, made.err
    run = json.loads((folder / RUN_FILE).read_bytes())
    assert run["provenance"] == begun
    (resumed,) = run["resumed"]
    assert resumed["code"] == code_fingerprint(ROOT) and "--exploratory" in resumed["argv"]
    assert run["stamp"].endswith("resumed under other code, asked for)")
    assert (folder / SHARD_FILE).read_bytes() == (small / SHARD_FILE).read_bytes()
    judged = inside("gate", folder)
    assert judged.code in (0, 1), judged.err
    assert "resumed under other code" in judged.out
    assert "resumed under other code" in (folder / VERDICT_FILE).read_text()


def test_a_run_that_has_gone_on_goes_on_again_under_the_latest_code_alone(
    copy: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy(lines=7)
    under_other_code(folder)
    assert inside("run", "--out", folder, *SMALL, "--exploratory").code == 0
    before = files(folder)
    # Under the same code nothing is to be noted, asked for or not.
    for more in ((), ("--exploratory",)):
        assert inside("run", "--out", folder, *SMALL, *more).code == 0
        assert files(folder) == before
    monkeypatch.setattr(provenance, "code_fingerprint", lambda root: "f" * 64)
    refused(inside("run", "--out", folder, *SMALL), 3, "provenance.code", f"{'f' * 64!r} now")
    assert inside("run", "--out", folder, *SMALL, "--exploratory").code == 0
    history = json.loads((folder / RUN_FILE).read_bytes())["resumed"]
    assert [item["code"] for item in history][-1] == "f" * 64 and len(history) == 2


@pytest.mark.parametrize(
    ("command", "differing"),
    [
        (("--retriever", "bm25(k1=2)", "--limit", "20"), "identities.retriever"),
        (("--retriever", "bm25", "--limit", "19"), "plan.limit"),
        (("--retriever", "bm25", "--limit", "20", "--episode-seconds", "60"), "limits.episode_seconds"),
    ],
    ids=["retriever", "limit", "seconds"],
)
def test_another_run_is_refused_asked_for_or_not(command: tuple[str, ...], differing: str, copy: Copies) -> None:
    folder = copy(lines=7)
    under_other_code(folder)
    before = files(folder)
    for more in ((), ("--exploratory",)):
        message = refused(inside("run", "--out", folder, *QUIET, *command, *more), 3, "another run", differing)
        assert "resume it with --exploratory" not in message
    assert files(folder) == before


def test_a_history_that_was_taken_out_contradicts_the_stamp(copy: Copies) -> None:
    folder = copy()
    under_other_code(folder)
    (folder / SHARD_FILE).write_bytes(b"".join((folder / SHARD_FILE).read_bytes().splitlines(keepends=True)[:8]))
    assert inside("run", "--out", folder, *SMALL, "--exploratory").code == 0
    edit_run(folder, resumed=[])
    refused(inside("gate", folder), 3, "the stamp is", "resumed under other code")


@pytest.mark.parametrize("history", [["x"], [7], [None], [{}], [{"code": "c"}]], ids=json.dumps)
def test_a_history_that_is_none_is_refused_by_every_command(history: list[Any], copy: Copies) -> None:
    folder = edit_run(copy(lines=7), resumed=history)
    for command in (("status", folder), ("gate", folder), ("run", "--out", folder, *SMALL, "--exploratory")):
        refused(inside(*command), 3, RUN_FILE, "resumed.0")
