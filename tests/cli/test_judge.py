"""``aggregate``, ``gate`` and ``show`` on a complete run."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from conditions.storage.run_directory import AGGREGATE_FILE, VERDICT_FILE
from schemarouter import experiment
from schemarouter import files as files_module
from schemarouter.canonical import canonical_json, sha256_hex
from schemarouter.cli.episode_view import Needed, Reason, _parts
from schemarouter.cli.show import _near
from schemarouter.retrieval.registry import build_retriever
from schemarouter.state import ExecutionState
from surface.loader import load_catalogs
from tests.cli.conftest import Copies
from tests.cli.program import EPISODES, SMALL, aggregated, edit_run, environment, files, inside, outside, refused
from tests.toys import changed

pytestmark = pytest.mark.slow

STAMP = "EXPLORATORY (development surface, part of the grid, another retriever or agent)"
EPISODE = "dev-de-01/100/SR-5-STATE-AWARE"


def test_aggregate_says_how_many_of_how_many_and_writes_its_file(copy: Copies) -> None:
    folder = copy()
    result = inside("aggregate", folder)
    assert (result.code, result.err) == (0, "")
    assert f"{EPISODES}/{EPISODES} episodes" in result.out
    written = (folder / AGGREGATE_FILE).read_bytes()
    assert inside("aggregate", folder, "--json").stdout == written
    assert json.loads(written)["stamp"] == STAMP
    assert json.loads(written)["episodes"] == {"counted": EPISODES, "expected": EPISODES}


def test_gate_json_holds_six_criteria_provenance_and_stamp(copy: Copies) -> None:
    folder = copy()
    result = inside("gate", folder, "--json")
    verdict = result.json
    assert [item["number"] for item in verdict["criteria"]] == [1, 2, 3, 4, 5, 6]
    assert result.code == (0 if all(item["passed"] for item in verdict["criteria"]) else 1)
    assert verdict["passed"] is (result.code == 0)
    assert (verdict["stamp"], verdict["confirmatory"]) == (STAMP, False)
    run = json.loads((folder / "run.json").read_bytes())
    provenance = verdict["provenance"]
    assert provenance["identities"] == run["identities"]
    assert provenance["provenance"] == run["provenance"]
    assert provenance["plan_fingerprint"] == run["plan"]["fingerprint"]
    assert provenance["counts_sha256"] == run["identities"]["statistics"]
    assert provenance["episodes"] == {"counted": EPISODES, "expected": EPISODES}
    assert "not a language model" in provenance["agent_note"]
    assert provenance["retriever_note"] == ""  # bm25 is fitted to nothing.
    assert (folder / VERDICT_FILE).read_bytes() == result.stdout
    assert (folder / AGGREGATE_FILE).exists()
    assert result.err == ""


def test_a_verdict_can_be_written_elsewhere(copy: Copies, tmp_path: Path) -> None:
    folder, other = copy(), tmp_path / "elsewhere"
    result = inside("gate", folder, "--json", "--out", other)
    assert (other / VERDICT_FILE).read_bytes() == result.stdout
    assert (other / AGGREGATE_FILE).exists()
    assert not (folder / VERDICT_FILE).exists() and not (folder / AGGREGATE_FILE).exists()


def test_a_run_on_a_read_only_disk_is_judged_all_the_same(copy: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, folder = inside("gate", copy(), "--json"), copy()

    def read_only(path: Path, data: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files_module, "replace_file", read_only)
    result = inside("gate", folder, "--json")
    assert (result.code, result.stdout) == (expected.code, expected.stdout)
    assert "cannot be written (Read-only file system). The verdict stands all the same; --out PATH" in result.err
    refused(inside("gate", folder, "--out", folder.parent / "other"), 3, "cannot be written (Read-only file system)")


def test_the_gate_table_is_stamped_and_ends_with_the_verdict(copy: Copies) -> None:
    result = inside("gate", copy())
    first, *_, last = result.out.splitlines()
    assert first == STAMP
    assert last.startswith("Verdict: ") and last.endswith(STAMP)
    assert "How episodes ended (episodes)" in result.out
    assert f"{EPISODES}/{EPISODES} episodes." in result.out and "not a language model" in result.out
    for number in range(1, 7):
        assert f"│ {number} │" in result.out
    assert (result.code, result.err) == (1, "")


def test_the_gate_table_gives_the_code_of_the_run_and_the_unit_of_differences(copy: Copies) -> None:
    folder = copy()
    code = json.loads((folder / "run.json").read_bytes())["provenance"]["code"]
    printed = inside("gate", folder).out
    assert f"Code of the run: commit unknown, changes unknown, SHA-256 {code[:12]}." in printed
    assert json.loads((folder / VERDICT_FILE).read_bytes())["provenance"]["provenance"]["code"] == code
    rows = [line for line in printed.splitlines() if line.startswith(("│ 1 │", "│ 2 │", "│ 3 │", "│ 6 │"))]
    assert ["percentage" in row for row in rows] == [True, False, True, False]
    assert ["%" in row.split("│")[4] for row in rows] == [False, True, False, True]
    assert printed.count("Criterion 6 holds by its count.") == 1


def test_a_verdict_that_holds_is_exit_0_and_one_that_fails_exit_1(
    copy: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = experiment.judge

    for passed in (True, False):
        monkeypatch.setattr(experiment, "judge", lambda *a, p=passed, **o: changed(judged(*a, **o), passed=p))
        result = inside("gate", copy())
        assert result.code == (0 if passed else 1)
        assert ("Verdict: PASS" in result.out) is passed
        assert ("Verdict: FAIL" in result.out) is not passed


def test_gate_twice_says_the_same_and_changes_nothing(copy: Copies) -> None:
    folder = copy()
    first = inside("gate", folder, "--json")
    before = files(folder)
    assert inside("gate", folder, "--json") == first
    assert files(folder) == before


@pytest.mark.parametrize(
    "altered", [lambda data: data.replace(b'"numerator": 0', b'"numerator": 1', 1), lambda data: data[:-9], lambda _: b""]
)  # fmt: skip
def test_gate_refuses_an_altered_aggregate_and_leaves_it(altered: object, copy: Copies) -> None:
    folder = copy()
    data = aggregated(folder)
    assert callable(altered)
    changed = altered(data)
    assert changed != data
    (folder / AGGREGATE_FILE).write_bytes(changed)
    refused(inside("gate", folder), 3, AGGREGATE_FILE, "altered")
    assert (folder / AGGREGATE_FILE).read_bytes() == changed
    assert not (folder / VERDICT_FILE).exists()


def test_gate_refuses_a_folder_in_the_place_of_the_aggregate(copy: Copies) -> None:
    folder = copy()
    (folder / AGGREGATE_FILE).mkdir()
    refused(inside("gate", folder), 3, AGGREGATE_FILE)


def test_an_aggregate_does_not_know_where_when_or_by_what_command_it_was_run(copy: Copies, tmp_path: Path) -> None:
    folder = tmp_path / "moved" / "deep"
    assert inside("run", *SMALL[:-1], "plain", "--out", folder).code == 0
    assert aggregated(folder) == aggregated(copy())


def test_the_stamp_of_a_header_is_not_believed(copy: Copies) -> None:
    """run.json can be edited; what is not the locked protocol is exploratory all the same, or refused."""
    result = inside("gate", edit_run(copy(), stamp=""), "--json")
    assert result.code == 3 or result.json["stamp"].startswith("EXPLORATORY")


@pytest.mark.parametrize("part", ["stamp", "provenance"])
@pytest.mark.parametrize("command", ["aggregate", "gate"])
def test_a_header_without_a_part_is_refused_by_name(command: str, part: str, copy: Copies) -> None:
    folder = edit_run(copy(), **{part: None})
    result = inside(command, folder)
    # An aggregate holds no provenance, so it need not miss it.
    if (command, part) != ("aggregate", "provenance") or result.code:
        refused(result, 3, "run.json", part)


def test_show_lists_every_episode_in_the_order_of_the_grid(copy: Copies) -> None:
    folder = copy()
    result = inside("show", folder)
    assert (result.code, result.err) == (0, "")
    rows = json.loads(aggregated(folder))["rows"]
    named = [line.split()[0] for line in result.out.splitlines() if "/100/" in line]
    assert named == [f"{row['task']}/{row['catalog']}/{row['condition']}" for row in rows]


def test_every_table_of_an_exploratory_run_is_stamped(copy: Copies) -> None:
    folder = copy()
    assert STAMP in inside("show", folder).out
    assert STAMP in inside("aggregate", folder).out


def test_show_prints_an_episode_turn_by_turn(copy: Copies) -> None:
    folder = copy()
    result = inside("show", folder, EPISODE)
    assert (result.code, result.err) == (0, "")
    stamp, *lines = result.out.splitlines()
    assert stamp == STAMP
    assert lines[0] == f"{EPISODE}, attempt 1"
    for word in ("  exposed   (open)", "turn 1: ", "  called    ", "  observed  (", "  state     ", "ended: "):
        assert any(line.startswith(word) for line in lines), word
    queries = {row["id"]: row["query"] for row in inside("list", "tasks", "--json").json}
    assert "".join(queries["dev-de-01"].split()) in "".join(result.out.split())


def test_an_episode_as_json_holds_its_record_what_was_needed_and_every_state(copy: Copies) -> None:
    shown = inside("show", copy(), EPISODE, "--json").json
    assert shown["stamp"] == STAMP
    [attempt] = shown["attempts"]
    events = attempt["record"]["events"]
    observed = [event for event in events if event["type"] == "observed"]
    states = [ExecutionState.parse(canonical_json(state)) for state in attempt["states"]]
    hashes = [event["sha256"] for event in events if event["type"] == "state"]
    assert [sha256_hex(state.canonical_json()) for state in states[1:]] == hashes
    assert len(states) == 1 + len(observed) > 1
    exposures = [event for event in events if event["type"] == "exposed"]
    turns = [event["turn"] for event in events if event["type"] == "model_turn"]
    assert [item["turn"] for item in attempt["needed"]] == turns
    for item, exposure in zip(attempt["needed"], exposures, strict=True):
        assert item["exposed"] is (item["route"] in exposure["routes"])
        assert item["rank"] is None or exposure["ranking"][item["rank"] - 1] == item["route"]


def test_what_was_needed_stands_with_its_rank_under_every_turn(copy: Copies) -> None:
    folder = copy()
    lines = inside("show", folder, EPISODE).out.splitlines()
    needed = inside("show", folder, EPISODE, "--json").json["attempts"][0]["needed"]
    under = [lines[at + 1] for at, line in enumerate(lines) if line.startswith("turn ")]
    assert under == [f"  needed    {Needed(**{**item, 'reason': None})}" for item in needed]
    assert (
        "rank" in under[0] and str(Needed(1, "pay", "bank.pay", None, 0, False)) == "bank.pay (step pay): not exposed"
    )


def test_a_needed_route_that_was_not_shown_says_why_by_its_place_among_all(copy: Copies) -> None:
    folder, found = copy(), 0
    for task in ("dev-de-01", "dev-de-02", "dev-de-03", "dev-de-04"):
        episode = f"{task}/100/SR-5-STATIC"
        needed = inside("show", folder, episode, "--json").json["attempts"][0]["needed"]
        lines = [line for line in inside("show", folder, episode).out.splitlines() if line.startswith("  why  ")]
        query = next(row["query"] for row in inside("list", "tasks", "--json").json if row["id"] == task)
        ranked = inside("retrieve", query, "--retriever", "bm25", "--json", "-k", "100").json["candidates"]
        places = {item["id"]: (place, item["score"]) for place, item in enumerate(ranked, start=1)}
        last = ranked[:5][-1]
        assert len(lines) == sum(item["reason"] is not None for item in needed)
        for item in needed:
            assert (item["reason"] is None) is (item["rank"] is not None and item["rank"] <= 5)
            if item["reason"]:
                found += 1
                assert (item["reason"]["rank"], item["reason"]["score"]) == places.get(item["route"], (None, None))
                assert (item["reason"]["last_shown"], item["reason"]["last_score"]) == (last["id"], last["score"])
    assert found


def test_the_parts_of_a_reason_add_up_to_the_difference_of_the_scores() -> None:
    entries = load_catalogs([100])[100]
    retriever = build_retriever("typed", entries)
    ranking = retriever.rank("Cancel order 4471 and refund it", k=100)
    scores, (fifth, last) = dict(ranking.items), (ranking.ids[4], ranking.ids[-1])
    parts = _parts(ranking, last, fifth)
    assert sum(parts.values()) == pytest.approx(scores[last] - scores[fifth], abs=1e-5)
    assert [abs(gain) for gain in parts.values()] == sorted(map(abs, parts.values()), reverse=True)
    text = str(Reason(100, scores[last], fifth, scores[fifth], parts))
    assert text.startswith(f"rank 100, score {scores[last]:.3f} against") and f"{next(iter(parts))} " in text
    assert "gives it no score" in str(Reason(None, None, fifth, 1.0, {}))
    assert str(Reason(None, None, "nothing", None, {})).endswith("has nothing")


def test_of_a_state_the_change_is_shown(copy: Copies) -> None:
    folder = copy()
    states = inside("show", folder, EPISODE, "--json").json["attempts"][0]["states"]
    [first, *_] = [line for line in inside("show", folder, EPISODE).out.splitlines() if line.startswith("  state     ")]
    before, after = states[:2]
    added = set(after["observation_field_names"]) - set(before["observation_field_names"])
    assert added and all(f"+{name}" in first for name in added)
    assert before["original_query"] not in first


@pytest.mark.parametrize("part", ["dev-de-01", "dev-de-01/", "dev-de-01/100"])
def test_a_part_of_an_id_lists_the_episodes_that_begin_with_it(part: str, copy: Copies) -> None:
    folder = copy()
    rows = json.loads(aggregated(folder))["rows"]
    expected = [row for row in rows if row["task"] == "dev-de-01"]
    assert inside("show", folder, part, "--json").json == {"stamp": STAMP, "rows": expected}
    named = [line.split()[0] for line in inside("show", folder, part).out.splitlines() if "/100/" in line]
    assert named == [f"{row['task']}/{row['catalog']}/{row['condition']}" for row in expected]


@pytest.mark.parametrize(
    ("given", "near"),
    [(EPISODE.lower(), EPISODE), ("dev-de-01/100/SR-5-STATE-AWAR", EPISODE), ("dev-de-01/100/FUL", "dev-de-01/100/FULL")],
)  # fmt: skip
def test_show_of_an_unknown_episode_names_the_closest(given: str, near: str, copy: Copies) -> None:
    result = inside("show", copy(), given)
    refused(result, 2, f"unknown episode {given!r}", *(() if given.islower() else (f"Did you mean {near!r}?",)))


@pytest.mark.parametrize("given", ["dev-de-01/1", "DEV-DE-01/250/FULL", "dev-de-1/100/FULL", "dev-de-01/FULL"])
def test_the_task_part_of_an_unknown_episode_is_compared_first(given: str, copy: Copies) -> None:
    message = refused(inside("show", copy(), given), 2, "Did you mean 'dev-de-01/100/", f"The run has {EPISODES}")
    assert "dev-de-02" not in message and message.count("dev-de-01/100/") == 1 + 5


def test_the_spelling_of_capitals_is_no_other_episode_to_suggest(copy: Copies) -> None:
    refused(inside("show", copy(), EPISODE.lower()), 2, f"Did you mean {EPISODE!r}?")


def test_of_what_is_like_no_episode_only_the_number_is_given(copy: Copies) -> None:
    message = refused(inside("show", copy(), "§§§"), 2, "unknown episode '§§§'", f"The run has {EPISODES}")
    assert "Did you mean" not in message and "nearest" not in message


def test_exposed_routes_stand_in_the_order_of_their_ranks(copy: Copies) -> None:
    folder = copy()
    lines = inside("show", folder, EPISODE).out.splitlines()
    opened = next(line for line in lines if line.startswith("  exposed   (open) "))
    shown = [item.split() for item in opened.removeprefix("  exposed   (open) ").split(", ")]
    query = next(row["query"] for row in inside("list", "tasks", "--json").json if row["id"] == "dev-de-01")
    ranked = inside("retrieve", query, "--retriever", "bm25", "--json").json["candidates"]
    assert shown == [[str(rank), item["id"]] for rank, item in enumerate(ranked, start=1)]
    without = inside("show", folder, "dev-de-01/100/ORACLE").out
    [exposed] = [line.split(") ")[1] for line in without.splitlines() if line.startswith("  exposed ")]
    assert not any(item.split()[0].isdigit() for item in exposed.split(", "))


def test_show_of_an_unknown_episode_of_many_does_not_list_them_all() -> None:
    units = [f"dev-de-{i:02}/100/FULL" for i in range(60)]
    near = _near("dev-de-07/100/FULLL", units)
    assert "Did you mean 'dev-de-07/100/FULL'?" in near and "60" in near and "dev-de-42" not in near


@pytest.mark.parametrize("command", ["aggregate", "gate", "show"])
@pytest.mark.parametrize(("lines", "torn", "words"), [
    (EPISODES - 1, 0, ("not complete: 19 of 20 episodes", "dev-de-04/100/ORACLE", "same run command")),
    (3, 0, ("3 of 20", "…")),
    (0, 0, ("0 of 20",)),
    (7, 50, ("line 9", "torn")),
])  # fmt: skip
def test_no_outcome_before_the_run_is_complete(
    lines: int, torn: int, words: tuple[str, ...], command: str, copy: Copies
) -> None:
    folder = copy(lines=lines, torn=torn)
    before = files(folder)
    refused(inside(command, folder), 3, *words)
    refused(inside(command, folder, EPISODE if command == "show" else "--json"), 3, *words)
    assert files(folder) == before


def test_json_is_utf_8_whatever_the_locale_says(copy: Copies) -> None:
    folder = copy()
    changes = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    listed = outside("list", "tasks", "--json", env=environment(**changes))
    assert listed.code == 0 and any("é" in row["query"] for row in listed.json)
    assert outside("aggregate", folder, "--json", env=environment(**changes)).stdout == aggregated(folder)


@pytest.mark.parametrize("columns", ["80", "0"])
def test_a_narrow_terminal_cuts_no_id_and_no_condition(
    columns: str, copy: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy()
    for name, value in {"COLUMNS": columns, "TTY_COMPATIBLE": "1", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    shown = inside("show", folder)
    assert shown.code == 0 and "…" not in shown.out
    cells = "".join(line.split("  ")[0].split(" yes")[0].strip() for line in shown.out.splitlines())
    assert EPISODE in cells
    judged = inside("gate", folder)
    assert judged.code == 1 and "SR-5-STATE-AWARE" in judged.out
    # Some titles begin with one.
    assert "…" not in judged.out.replace("│ … ", "")


def test_a_home_folder_is_found_and_the_next_command_is_quoted(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    merged = inside("merge", small, "--out", "~/all of it")
    assert (merged.code, (tmp_path / "all of it").is_dir()) == (0, True), merged.err
    assert merged.err.rstrip().endswith(f"Next: schemarouter gate '{tmp_path}/all of it'")
    assert inside("status", "~/all of it").code == 0
    state = ExecutionState.start("cancel order 4471").canonical_json()
    (tmp_path / "state.json").write_bytes(state)
    assert inside("state", "check", "~/state.json").code == 0
    assert inside("retrieve", "cancel order 4471", "--retriever", "bm25", "--state", "~/state.json").code == 0
    missing = inside("run", "--out", "~/one", "--max-cost", "1", "--prices", "~/none.toml")
    assert f"{tmp_path}/none.toml" in missing.err


def test_an_aggregate_made_here_is_what_the_library_computes(copy: Copies) -> None:
    folder = copy()
    result = experiment.aggregate(folder, write=False)
    assert aggregated(folder) == b"".join(result.chunks())
    assert json.loads(aggregated(folder)) == result.as_json()
