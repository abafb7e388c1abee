"""The gate on rows made by hand: integers at the exact boundaries, undefined counts, and what is shown beside the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.running.plan import Plan
from gates.aggregate import CompleteRun, EpisodesCounted
from gates.criteria import Criteria
from gates.episode_table import EpisodeRow
from gates.gate import judge
from gates.intervals import Interval
from gates.measures import EpisodeCounts, Measure
from gates.statistics import RatioDraws, Statistics
from gates.verdict import Criterion, Verdict
from schemarouter.agents import reference
from tests.strategies import LAWS
from tests.toys import SR, changed, complete_run, toy_protocol

STATIC, PROGRESSIVE, AWARE = SR
PROTOCOL = toy_protocol(20)
TASKS = tuple(f"t{n:02d}" for n in range(10))
CELLS = {task: f"stratum_{n % 2}/{'en' if n % 4 < 2 else 'ko'}" for n, task in enumerate(TASKS)}
SIZES = (12, 36)
STATISTICS = Statistics(CELLS, PROTOCOL.statistics)


def counts(**given_counts: int) -> EpisodeCounts:
    """EpisodeCounts that are zero but for those given and for what every episode has."""
    zeros = dict.fromkeys((item.name for item in fields(EpisodeCounts)), 0)
    return EpisodeCounts(**{**zeros, "episodes": 1, "steps_required": 2, **given_counts})


def spread(total: int) -> list[int]:
    """A sum over the twenty episodes of a condition, as even as it can be."""
    share, rest = divmod(total, 20)
    return [share + (n < rest) for n in range(20)]


CALLS = {"executed": 60, "executed_in_policy": 60}
GOOD: Mapping[str, Mapping[str, int]] = {
    AWARE: {"passed": 18, "recall_hits": 99, "recall_events": 100, "missed": 10, "recovered": 9, "schema_tokens": 900}
    | CALLS,
    PROGRESSIVE: {"passed": 18, "missed": 10, "recovered": 8, "schema_tokens": 1000} | CALLS,
    "ORACLE": {"passed": 20} | CALLS,
}


def rows_of(sums: Mapping[str, Mapping[str, int]]) -> list[EpisodeRow]:
    """Twenty episodes for each condition, which add up to the sums."""
    rows = []
    units = [(task, size) for size in SIZES for task in TASKS]
    for condition, wanted in sums.items():
        shares = {name: spread(total) for name, total in wanted.items()}
        for n, (task, size) in enumerate(units):
            rows.append(EpisodeRow(task, size, condition, counts(**{name: share[n] for name, share in shares.items()})))
    return rows


def result_of(rows: Sequence[EpisodeRow], stamp: str = "EXPLORATORY") -> CompleteRun:
    conditions = tuple(dict.fromkeys(row.condition for row in rows)) or (AWARE, PROGRESSIVE)
    return complete_run(Plan(TASKS, SIZES, conditions), rows, CELLS, stamp)


def criteria(**changes: Mapping[str, int]) -> list[Criterion]:
    """All six on GOOD with some sums changed; `aware=`, `progressive=`, `oracle=`."""
    names = {"aware": AWARE, "progressive": PROGRESSIVE, "oracle": "ORACLE"}
    sums = {condition: dict(good) for condition, good in GOOD.items()}
    for key, change in changes.items():
        sums[names[key]] |= change
    return list(Criteria(result_of(rows_of(sums)), PROTOCOL, STATISTICS).all())


def passed(number: int, **changes: Mapping[str, int]) -> bool:
    found = criteria(**changes)
    others = [item.number for item in found if not item.passed and item.number != number]
    assert not others, f"{others} fell too"
    assert not any(item.undefined for item in found)
    return found[number - 1].passed


def test_all_six_hold_on_good_sums() -> None:
    found = criteria()
    assert [(item.number, item.passed, item.undefined) for item in found] == [(n, True, False) for n in range(1, 7)]


# --- exact boundaries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aware", "progressive", "loss", "held"),
    [
        (18, 18, 2, True),
        (17, 18, 5, True),
        (17, 18, 4, False),
        (16, 18, 10, True),
        (16, 18, 9, False),
        (20, 0, 2, True),
    ],
)
def test_task_pass_may_be_exactly_the_allowed_points_below_progressive_and_no_more(
    aware: int, progressive: int, loss: int, held: bool
) -> None:
    gate = PROTOCOL.gate.model_copy(update={"max_pass_loss_percentage_points": loss})
    sums = {AWARE: {"passed": aware}, PROGRESSIVE: {"passed": progressive}}
    result = result_of(rows_of(sums))
    found = Criteria(result, PROTOCOL.model_copy(update={"gate": gate}), STATISTICS).all()[0]
    assert found.passed is held and found.sums == {"state_aware": (aware, 20), "progressive": (progressive, 20)}


@pytest.mark.parametrize(("lost", "held"), [(1, True), (2, False)])
def test_two_points_of_fifty_episodes_are_exactly_one_episode(lost: int, held: bool) -> None:
    # 49/50 - 50/50 is -0.02 in decimals; in floats it is -0.020000000000000018.
    tasks = tuple(f"t{n:02d}" for n in range(50))
    cells = dict.fromkeys(tasks, "stratum_0/en")
    rows = [EpisodeRow(task, 12, PROGRESSIVE, counts(passed=1)) for task in tasks]
    rows += [EpisodeRow(task, 12, AWARE, counts(passed=int(n >= lost))) for n, task in enumerate(tasks)]
    result = complete_run(Plan(tasks, (12,), (AWARE, PROGRESSIVE)), rows, cells)
    assert 49 / 50 - 50 / 50 < -0.02
    assert Criteria(result, PROTOCOL, Statistics(cells, PROTOCOL.statistics)).all()[0].passed is held


@pytest.mark.parametrize(
    ("hits", "events", "held"),
    [(97, 100, True), (96, 100, False), (969_999, 1_000_000, False), (970_000, 1_000_000, True), (9699, 10_000, False)],
)
def test_recall_is_held_at_exactly_97_percent_and_not_rounded_up_to_it(hits: int, events: int, held: bool) -> None:
    assert passed(2, aware={"recall_hits": hits, "recall_events": events}) is held


@pytest.mark.parametrize(("recovered", "held"), [(9, True), (8, False), (7, False)])
def test_recovery_has_to_be_strictly_better(recovered: int, held: bool) -> None:
    assert passed(3, aware={"recovered": recovered}) is held


def test_recovery_is_compared_as_ratios_of_their_own_denominators() -> None:
    assert passed(3, aware={"missed": 3, "recovered": 1}, progressive={"missed": 10, "recovered": 3})
    assert not passed(3, aware={"missed": 6, "recovered": 2}, progressive={"missed": 9, "recovered": 3})


@pytest.mark.parametrize(("tokens", "held"), [(999, True), (1000, False), (1001, False)])
def test_tokens_have_to_be_strictly_below(tokens: int, held: bool) -> None:
    assert passed(4, aware={"schema_tokens": tokens}) is held


@pytest.mark.parametrize("condition", ["aware", "progressive", "oracle"])
def test_one_unauthorised_destructive_run_in_any_condition_fails_criterion_5_alone(condition: str) -> None:
    assert not passed(5, **{condition: {"unauthorised_destructive": 1}})


@pytest.mark.parametrize("condition", ["aware", "progressive", "oracle"])
def test_one_call_out_of_policy_in_any_condition_fails_criterion_6_alone(condition: str) -> None:
    assert not passed(6, **{condition: {"executed": 10_000, "executed_in_policy": 9_999}})


SHARES = st.integers(1, 400).flatmap(lambda whole: st.tuples(st.integers(0, whole), st.just(whole)))


@LAWS
@given(SHARES, SHARES, SHARES, st.integers(0, 20), st.integers(0, 20), st.integers(0, 99), st.integers(0, 99))
def test_every_criterion_is_the_comparison_of_fractions(
    recall: tuple[int, int],
    aware: tuple[int, int],
    other: tuple[int, int],
    a: int,
    b: int,
    costs: int,
    costs_other: int,
) -> None:
    found = criteria(
        aware={"recall_hits": recall[0], "recall_events": recall[1], "recovered": aware[0], "missed": aware[1], "passed": a,
               "schema_tokens": costs},
        progressive={"recovered": other[0], "missed": other[1], "passed": b, "schema_tokens": costs_other},
    )  # fmt: skip
    assert [item.passed for item in found[:4]] == [
        Fraction(a, 20) >= Fraction(b, 20) - Fraction(2, 100),
        Fraction(*recall) >= Fraction(97, 100),
        Fraction(*aware) > Fraction(*other),
        costs < costs_other,
    ]


# --- undefined --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (2, {"aware": {"recall_hits": 0, "recall_events": 0}}),
        (3, {"aware": {"missed": 0, "recovered": 0}}),
        (3, {"progressive": {"missed": 0, "recovered": 0}}),
        (6, {name: {"executed": 0, "executed_in_policy": 0} for name in ("aware", "progressive", "oracle")}),
    ],
)
def test_an_undefined_ratio_fails_its_criterion_and_says_so(number: int, changes: dict[str, dict[str, int]]) -> None:
    found = criteria(**changes)
    assert [item.number for item in found if item.undefined] == [number]
    judged = found[number - 1]
    assert not judged.passed and judged.estimate is None and "0/0" in judged.detail
    assert not any(judged.supported_by.values())


@pytest.mark.parametrize("condition", [AWARE, PROGRESSIVE])
def test_without_a_condition_its_criteria_are_undefined_and_fail(condition: str) -> None:
    rows = [row for row in rows_of(GOOD) if row.condition != condition]
    found = Criteria(result_of(rows), PROTOCOL, STATISTICS).all()
    assert {item.number for item in found if item.undefined} == ({1, 2, 3, 4} if condition == AWARE else {1, 3, 4})
    assert not any(item.passed for item in found if item.undefined)


def test_a_run_without_episodes_passes_nothing() -> None:
    found = Criteria(result_of([]), PROTOCOL, STATISTICS).all()
    assert all(item.undefined and not item.passed for item in found)


# --- the verdict ------------------------------------------------------------------------------------------------------


def verdict(**changes: Any) -> Verdict:
    sums = {condition: dict(good) for condition, good in GOOD.items()}
    for condition, change in changes.items():
        sums[condition] = sums.get(condition, {}) | change
    return judge(result_of(rows_of(sums)), PROTOCOL)


def test_the_verdict_passes_when_all_six_hold_and_fails_when_one_does_not() -> None:
    assert verdict().passed
    assert not verdict(ORACLE={"unauthorised_destructive": 1}).passed


def test_each_criterion_shows_its_intervals_and_whether_they_alone_would_support_it() -> None:
    found = verdict().criteria
    assert set(found[0].intervals) == set(found[0].supported_by) == {"percentile", "rao_wu"}
    assert set(found[1].intervals) == {"percentile", "rao_wu", "logit_t"}
    assert found[0].supported_by["percentile"] is False, "18 of 20 cannot support a margin of two points"
    assert all(found[5].intervals[name].method.startswith("exact binomial") for name in found[5].intervals)
    assert not any(found[5].supported_by.values()), "all of 10 tasks do not prove 100 %"


class Fixed(Statistics):
    """Statistics whose every interval is the one given."""

    interval: Interval

    def intervals(self, draws: RatioDraws, item: Measure) -> dict[str, Interval]:
        return {"fixed": self.interval}

    def differences(self, a: RatioDraws, b: RatioDraws, item: Measure) -> dict[str, Interval]:
        return {"fixed": self.interval}


@pytest.mark.parametrize(
    ("low", "high", "supported"),
    [
        (-0.0201, 0.5, set()), (-0.02, 0.5, {1}), (0.0, 0.5, {1}), (1e-9, 0.5, {1, 3}), (0.9699, 1.0, {1, 3}),
        (0.97, 1.0, {1, 2, 3}), (1.0, 1.0, {1, 2, 3, 6}), (-0.5, 0.0, set()), (-0.5, -1e-9, {4}), (None, None, set()),
    ],
)  # fmt: skip
def test_an_interval_supports_a_criterion_where_all_of_it_holds(
    low: float | None, high: float | None, supported: set[int]
) -> None:
    statistics = Fixed(CELLS, PROTOCOL.statistics)
    statistics.interval = Interval(low, high, "fixed")
    found = Criteria(result_of(rows_of(GOOD)), PROTOCOL, statistics).all()
    assert {item.number for item in found if item.supported_by.get("fixed")} == supported


def test_the_order_of_rows_changes_nothing() -> None:
    rows = rows_of(GOOD)
    one, other = judge(result_of(rows), PROTOCOL), judge(result_of(rows[::-1]), PROTOCOL)
    assert one.criteria == other.criteria
    assert one.slices == other.slices and one.conditions == other.conditions


def test_progressive_at_the_ceiling_is_noted() -> None:
    assert "ceiling" in criteria(progressive={"missed": 5, "recovered": 5})[2].detail
    assert "ceiling" not in criteria()[2].detail


def test_conditions_show_every_measure_with_its_sums_and_null_where_undefined() -> None:
    conditions = verdict().conditions
    assert conditions["ORACLE"]["initial_miss_recovery"].value is None
    recall = conditions[AWARE]["next_required_recall"]
    assert (recall.numerator, recall.denominator, recall.value) == (99, 100, 0.99)


def test_slices_add_up_to_the_whole_by_catalog_language_and_stratum() -> None:
    slices = verdict(**{STATIC: {"passed": 3}}).slices
    assert {name: sorted(groups) for name, groups in slices.items()} == {
        "catalog": ["12", "36"], "language": ["en", "ko"], "stratum": ["stratum_0", "stratum_1"],
    }  # fmt: skip
    for groups in slices.values():
        for condition, whole in ((AWARE, 18), (STATIC, 3)):
            parts = [group[condition]["task_pass"] for group in groups.values()]
            assert sum(item.numerator for item in parts) == whole
            assert sum(item.denominator for item in parts) == 20


def test_a_slice_holds_the_episodes_of_its_group_and_no_others() -> None:
    english = [row.task for row in rows_of(GOOD) if CELLS[row.task].endswith("/en")]
    rows = [EpisodeRow(task, size, AWARE, counts(passed=int(task in english))) for size in SIZES for task in TASKS]
    slices = judge(result_of(rows), PROTOCOL).slices["language"]
    assert {name: group[AWARE]["task_pass"].value for name, group in slices.items()} == {"en": 1.0, "ko": 0.0}


def test_tokens_over_episodes_that_both_conditions_pass_are_noted() -> None:
    rows = [
        EpisodeRow("t00", 12, AWARE, counts(passed=1, schema_tokens=10)),
        EpisodeRow("t00", 12, PROGRESSIVE, counts(passed=1, schema_tokens=30)),
        EpisodeRow("t01", 12, AWARE, counts(passed=1, schema_tokens=500)),
        EpisodeRow("t01", 12, PROGRESSIVE, counts(passed=0, schema_tokens=700)),
        EpisodeRow("t02", 12, AWARE, counts(passed=1, schema_tokens=20)),
        EpisodeRow("t02", 12, PROGRESSIVE, counts(passed=1, schema_tokens=50)),
    ]
    [note] = judge(result_of(rows), PROTOCOL).notes
    assert "2 episodes that both conditions pass: state-aware 15.0, progressive 40.0" in note


def test_attempts_that_ended_by_an_infrastructure_failure_are_noted() -> None:
    result = result_of(rows_of({AWARE: {"passed": 0}}))
    for attempts in (1, 3):
        [note] = judge(replace(result, infrastructure_attempts=attempts), PROTOCOL).notes
        assert f"{attempts} attempts ended by infrastructure failures" in note
    assert judge(result, PROTOCOL).notes == ()


@pytest.mark.parametrize(
    ("confirmatory", "stamp", "expected"), [(True, "", True), (True, "EXPLORATORY", False), (False, "", False)]
)
def test_only_an_unstamped_run_of_a_confirmatory_protocol_is_confirmatory(
    confirmatory: bool, stamp: str, expected: bool
) -> None:
    protocol = PROTOCOL.model_copy(update={"confirmatory": confirmatory})
    assert judge(result_of(rows_of(GOOD), stamp), protocol).confirmatory is expected


def test_a_verdict_names_what_it_rests_on_and_what_it_measures() -> None:
    found = verdict()
    assert found.provenance.episodes == EpisodesCounted(counted=60, expected=60)
    assert found.provenance.counts_sha256 == STATISTICS.fingerprint
    assert "not a language model" in found.provenance.agent_note and found.stamp == "EXPLORATORY"


@pytest.mark.parametrize(("retriever", "noted"), [
    ("typed(model=use-m3)", True), ("rrf(bm25,typed,k=60)", True), ("bm25", False), ("of_another_package", False),
])  # fmt: skip
def test_a_retriever_that_was_fitted_to_the_tasks_of_the_run_is_noted(retriever: str, noted: bool) -> None:
    result = result_of(rows_of(GOOD))
    identities = changed(result.header.identities, retriever=retriever)
    for surface, fitted in (("development", noted), ("another", False)):
        header = changed(result.header, identities=identities, surface=surface)
        note = judge(replace(result, header=header), PROTOCOL).provenance.retriever_note
        assert ("was fitted to the development tasks" in note) is fitted


@pytest.mark.parametrize(
    ("agent", "said"), [("reference(probe=false)", reference.DECLARATION.summary), ("mine(x=1)", "unknown here")]
)
def test_the_note_says_of_the_agent_what_it_says_of_itself(agent: str, said: str) -> None:
    result = result_of(rows_of(GOOD))
    header = changed(result.header, identities=changed(result.header.identities, agent=agent))
    note = judge(replace(result, header=header), PROTOCOL).provenance.agent_note
    assert f"The agent, {agent}, {said}." in note
