"""Verdicts and lists of episodes as text for a console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table

from conditions.registry import ranks
from conditions.storage.run_directory import Provenance
from gates.criteria import INTERVAL_MEASURES, SLICE_MEASURES
from gates.episode_table import EpisodeRow
from gates.intervals import Interval
from gates.measures import BY_NAME, Measure
from gates.verdict import Criterion, Verdict
from schemarouter.cli.common import console as make_console
from schemarouter.records import episode_id

NAMES = {"percentile": "percentile", "rao_wu": "Rao-Wu", "logit_t": "logit-t"}


def number(value: float | None, *, rate: bool) -> str:
    """A figure for a table: a rate in percent, another mean as a number, or ``undefined``."""
    if value is None:
        return "undefined"
    return f"{100 * value:.1f} %" if rate else f"{value:,.1f}"


def points(value: float | None) -> str:
    """A difference of two rates for a table, in percentage points."""
    return "undefined" if value is None else f"{100 * value:+.1f} percentage points"


def code_text(provenance: Provenance) -> str:
    """The code of a run as its header states it: commit, uncommitted changes, and fingerprint."""
    changed = {True: "uncommitted changes", False: "no uncommitted changes", None: "changes unknown"}[provenance.dirty]
    commit, code = ((text or "unknown")[:12] for text in (provenance.commit, provenance.code))
    return f"Code of the run: commit {commit}, {changed}, SHA-256 {code}."


def interval_text(interval: Interval | None, *, rate: bool) -> str:
    """An interval for a table; ``exact`` marks one that replaced the usual method."""
    if interval is None:
        return ""
    if interval.low is None or interval.high is None:
        return "undefined"
    scale = 100 if rate else 1
    text = f"[{scale * interval.low:.1f}, {scale * interval.high:.1f}]"
    return text + (" exact" if interval.method.startswith("exact") else "")


def print_verdict(verdict: Verdict) -> None:
    """Print the measures by condition, the slices, the criteria and the verdict."""
    console = make_console()
    if verdict.stamp:
        console.print(f"[bold]{verdict.stamp}[/bold]")
    console.print(_conditions(verdict))
    console.print(endings_table(verdict.endings))
    for name in verdict.slices:
        console.print(_slices(verdict, name))
    console.print(_criteria(verdict))
    for note in (*_support_notes(verdict), *verdict.notes):
        console.print(note)
    console.print(code_text(verdict.provenance.provenance), markup=False, highlight=False)
    episodes = verdict.provenance.episodes
    console.print(f"{episodes.counted}/{episodes.expected} episodes. {verdict.provenance.agent_note}")
    if verdict.provenance.retriever_note:
        console.print(verdict.provenance.retriever_note)
    failed = [str(item.number) for item in verdict.criteria if not item.passed]
    plural = "criterion" if len(failed) == 1 else "criteria"
    word = "PASS" if verdict.passed else f"FAIL ({plural} {', '.join(failed)})"
    console.print(f"[bold]Verdict: {word}[/bold]" + (f" — {verdict.stamp}" if verdict.stamp else ""))


def _conditions(verdict: Verdict) -> Table:
    table = Table(
        title="Measures by condition (numerator/denominator; 95 % intervals: logit-t of rates, Rao–Wu of means)",
        title_justify="left",
    )
    table.add_column("measure", overflow="fold")
    for name in verdict.conditions:
        table.add_column(name, justify="right", overflow="fold")
    for measure in BY_NAME.values():
        cells = []
        for name, estimates in verdict.conditions.items():
            if measure.ranked_only and not ranks(name):
                cells.append("–")
                continue
            entry = estimates[measure.name]
            text = number(entry.value, rate=measure.percent)
            if measure.rate:
                text += f" ({entry.numerator}/{entry.denominator})"
            if intervals := entry.intervals:
                text += "\n" + interval_text(intervals.get("logit_t") or intervals["rao_wu"], rate=measure.percent)
            cells.append(text)
        table.add_row(measure.title, *cells)
        if verdict.repeats and measure.name in INTERVAL_MEASURES:
            table.add_row("    run-to-run spread", *_spreads(verdict, measure))
    return table


def endings_table(endings: Mapping[str, Mapping[str, int]]) -> Table:
    """How many episodes ended for each reason that occurred, by reason and condition."""
    table = Table(title="How episodes ended (episodes)", title_justify="left")
    table.add_column("reason")
    for name in endings:
        table.add_column(name, justify="right", overflow="fold")
    for reason in dict.fromkeys(reason for counts in endings.values() for reason in counts):
        cells = [counts.get(reason, 0) for counts in endings.values()]
        if any(cells):
            table.add_row(reason.replace("_", " "), *map(str, cells))
    return table


def _spreads(verdict: Verdict, measure: Measure) -> list[str]:
    """The standard deviation of a measure over the repeats of the run, a cell for each condition."""
    cells = []
    for name in verdict.conditions:
        if measure.ranked_only and not ranks(name):
            cells.append("–")
            continue
        repeated = verdict.repeats[name][measure.name]
        unit = " points" if measure.percent else ""
        spread = repeated.spread
        scaled = None if spread is None else spread * (100 if measure.percent else 1)
        cells.append("undefined" if scaled is None else f"SD {scaled:,.1f}{unit}, {len(repeated.values)} repeats")
    return cells


def _slices(verdict: Verdict, name: str) -> Table:
    table = Table(title=f"By {name} (logit-t intervals)", title_justify="left")
    table.add_column(name, overflow="fold")
    table.add_column("condition", no_wrap=True)
    for measure in SLICE_MEASURES:
        table.add_column(BY_NAME[measure].title, justify="right", overflow="fold")
    for group, by_condition in verdict.slices[name].items():
        for position, (condition, entries) in enumerate(by_condition.items()):
            cells = [
                f"{number(entries[m].value, rate=True)} ({entries[m].numerator}/{entries[m].denominator}) "
                + interval_text(entries[m].interval, rate=True)
                for m in SLICE_MEASURES
            ]
            table.add_row("" if position else group, condition, *cells)
    return table


def _criteria(verdict: Verdict) -> Table:
    table = Table(title="Gate (point estimates decide)", title_justify="left")
    for title in ("", "criterion", "judged on", "estimate", "intervals", "supported by", "holds"):
        table.add_column(title, overflow="fold")
    for item in verdict.criteria:
        table.add_row(str(item.number), item.title, item.detail, *_judgement(item))
    return table


def _support_notes(verdict: Verdict) -> list[str]:
    """The note for criterion 6, which requires all calls and can hold although no interval supports it."""
    return [
        f"Criterion {item.number} holds by its count. An interval always reaches below 100 %, even when every call kept "
        "the policy, so none can support it."
        for item in verdict.criteria
        if item.number == 6 and item.passed and not all(item.supported_by.values())
    ]


def _judgement(item: Criterion) -> tuple[str, str, str, str]:
    rate = item.number in (1, 2, 3, 6)
    if item.number == 5:
        estimate = str(item.sums["all"][0])
    else:
        estimate = points(item.estimate) if item.number in (1, 3) else number(item.estimate, rate=rate)
    lines = [f"{NAMES[n]} {interval_text(v, rate=rate)}" for n, v in item.intervals.items()]
    lines += [f"by families {interval_text(item.families, rate=rate)}"] if item.families else []
    intervals = "\n".join(lines)
    supported = "\n".join(f"{NAMES[n]}: {'yes' if v else 'no'}" for n, v in item.supported_by.items())
    return estimate, intervals, supported, "undefined" if item.undefined else ("yes" if item.passed else "NO")


def print_episodes(rows: Iterable[EpisodeRow]) -> None:
    """Print episodes, one line each."""
    console = make_console()
    table = Table(box=None, pad_edge=False)
    for title in ("episode", "pass", "steps", "recall", "missed", "recovered", "turns", "schema tokens"):
        table.add_column(title, overflow="fold")
    for row in rows:
        counts = row.counts
        table.add_row(
            episode_id(row.task, row.catalog, row.condition, row.repeat),
            "yes" if counts.passed else "no",
            f"{counts.steps_completed}/{counts.steps_required}",
            f"{counts.recall_hits}/{counts.recall_events}",
            "yes" if counts.missed else "",
            ("yes" if counts.recovered else "no") if counts.missed else "",
            str(counts.model_turns),
            str(counts.schema_tokens),
        )
    console.print(table)
