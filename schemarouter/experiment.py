"""Running the experiment from Python: run, aggregate and judge a grid of episodes.

The command line is a thin layer on these functions; a run made by either can be resumed and judged by the other.

Example:
    >>> from tempfile import mkdtemp
    >>> from schemarouter.experiment import judge, run_experiment
    >>> run = run_experiment(mkdtemp(), retriever="bm25", catalogs=[100], limit=20)
    >>> judge(run.folder).stamp
    'EXPLORATORY (development surface, part of the grid, another retriever or agent)'

"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conditions.running.engines.jobs import Limits
from conditions.running.engines.registry import EngineName, make_engine
from conditions.running.episode import output_tokens
from conditions.running.execute import execute
from conditions.running.plan import Plan, make_plan, parse_shard, plan_of
from conditions.running.provenance import clean_commit, provenance, whole_fingerprint
from conditions.running.runner import Setup
from conditions.running.spending import Spending, load_price
from conditions.storage.run_directory import (
    AGGREGATE_FILE,
    VERDICT_FILE,
    RunHeader,
    read_header,
)
from conditions.storage.shards import SHARD_GLOB, ProgressCounts, ShardLine, count_episodes, read_shard
from gates.aggregate import Aggregate, CompleteRun, read_complete_run, same_aggregate, write_aggregate
from gates.confirmatory_result import keep_or_compare
from gates.gate import judge as judge_run
from gates.identities import ReferenceData, load_reference, locked_fingerprints
from gates.reproduce import reproduce as run_again
from gates.run_header import new_header, resumed_header
from gates.verdict import Verdict
from preregistration.lock import read_lock, require_as_locked, scoring_refusal
from preregistration.protocol import load_protocol
from schemarouter.agents import registry as agents
from schemarouter.catalog.views import VIEWS, CatalogView
from schemarouter.disk_cache import no_cache
from schemarouter.errors import InvalidRunError, UsageError, unknown
from schemarouter.files import write_whole
from schemarouter.records import OUTCOMES, Ended, EpisodeRecord
from schemarouter.retrieval import registry as retrievers
from schemarouter.tokens import TokenCounter, cached_counts
from surface.loader import load_surface

__all__ = [
    "Aggregate",
    "EngineName",
    "Run",
    "Verdict",
    "aggregate",
    "judge",
    "load_complete_run",
    "load_run",
    "reproduce",
    "run_experiment",
]

Progress = Callable[[int, int], None]
# Eleven days; system timers refuse values above some years.
MAX_EPISODE_SECONDS = 1_000_000


@dataclass(frozen=True)
class Run:
    """A run directory: its header and the grid of its episodes."""

    folder: Path
    header: RunHeader
    plan: Plan

    def progress(self) -> ProgressCounts:
        """How many episodes are finished, and how many attempts an infrastructure failure ended; also of a live run."""
        return count_episodes(self.folder)

    def records(self) -> Iterator[EpisodeRecord]:
        """Every recorded attempt. Raises InvalidRunError unless the run is complete: no partial outcome is shown."""
        finished, expected = self.progress().finished, len(self.plan.units)
        if finished < expected:
            raise InvalidRunError(f"{self.folder} is not complete: {finished} of {expected} episodes.")
        for path in sorted(self.folder.glob(SHARD_GLOB)):
            yield from (line.record for line in read_shard(path) if isinstance(line, ShardLine))

    def endings(self) -> dict[str, dict[str, int]]:
        """How many episodes ended for each reason, by condition and reason. Raises InvalidRunError unless the run is complete."""
        counts = {name: dict.fromkeys(OUTCOMES, 0) for name in self.plan.conditions}
        for record in self.records():
            last = record.events[-1]
            if isinstance(last, Ended) and last.reason in OUTCOMES:
                counts[record.condition][last.reason] += 1
        return counts


def run_experiment(
    out: Path | str,
    *,
    surface: str = "development",
    retriever: str | None = None,
    agent: str | None = None,
    tasks: Sequence[str] | None = None,
    catalogs: Sequence[int] | None = None,
    conditions: Sequence[str] | None = None,
    limit: int | None = None,
    repeats: int = 1,
    catalog_view: CatalogView = "full",
    shard: str = "1/1",
    workers: int = 1,
    engine: EngineName = "local",
    address: str = "",
    episode_seconds: float | None = None,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    prices: Path | None = None,
    exploratory: bool = False,
    progress: Progress = lambda finished, expected: None,
    argv: Sequence[str] = (),
) -> Run:
    """Run the experiment, or resume it.

    Args:
        out: Run directory: a new one, or one of the same run to resume.
        surface: ``development``, ``training`` or ``frozen``.
        retriever: Retriever spec; the protocol's unless given.
        agent: Agent spec; the protocol's unless given.
        tasks: Ids of the tasks; all unless given.
        catalogs: Sizes of the catalogs; all unless given.
        conditions: Names of the conditions; all unless given.
        limit: Number of episodes to run, from the first of the grid; all unless given.
        repeats: Number of times that the grid is run, for an agent that takes a seed.
        catalog_view: Part of the catalogs that the retriever is built over: ``full`` or ``names-only``.
        shard: ``K/N``: every N-th episode from the K-th on.
        workers: Number of processes on this machine, or of actors of a Ray cluster.
        engine: What runs the episodes: ``local`` processes or ``ray``.
        address: Ray cluster to join; a local one is started unless given.
        episode_seconds: Seconds after which an episode has failed; makes the run exploratory.
        max_tokens: Number of tokens after which no further episode begins.
        max_cost: Money, in the currency of `prices`, after which no further episode begins.
        prices: TOML file with a table for each agent.
        exploratory: Stamp the run exploratory in any case, and resume it even under other code.
        progress: Called with the numbers of episodes finished so far and expected.
        argv: The command as it was typed, for the provenance of the run.

    Returns:
        The run; complete unless it is one shard of several.

    Raises:
        UsageError: For an option that is invalid or does not go with another.
        InvalidRunError: Where the surface may not be scored, anything differs from its lock, or `out` holds another run.
        InfrastructureError: After an infrastructure failure; the same call resumes the run.
        LimitReachedError: At `max_tokens` or `max_cost`; the same call with a higher limit resumes the run.

    """
    folder, protocol, part = Path(out), load_protocol(surface), parse_shard(shard)
    _require_written(surface)
    _require_options(catalog_view, episode_seconds)
    setup = Setup(
        surface,
        str(retrievers.resolve(protocol.retriever if retriever is None else retriever)),
        str(agents.resolve(protocol.agent if agent is None else agent)),
        catalog_view,
        whole_fingerprint(),
    )
    price = load_price(prices, agents.resolve(setup.agent).name) if prices is not None else None
    spending = Spending(max_tokens=max_tokens, max_cost=max_cost, price=price, output_tokens=_output_tokens)
    limits = Limits(episode_seconds, count_output=spending.counts_output, watched=spending.limited)
    plan = make_plan(
        protocol,
        load_surface(surface),
        tasks=tasks,
        catalogs=catalogs,
        conditions=conditions,
        limit=limit,
        repeats=repeats,
    )
    _require_runnable(setup, plan, exploratory=exploratory)
    header = new_header(setup, plan, provenance(folder, argv), episode_seconds=episode_seconds, exploratory=exploratory)
    expected = len(part.units(plan))
    execute(
        folder,
        header,
        plan,
        make_engine(engine, setup, workers, limits, address),
        lambda finished: progress(finished, expected),
        shard=part,
        spending=spending,
        resume=resumed_header(header, plan) if exploratory else None,
    )
    return load_run(folder)


def _require_written(surface: str) -> None:
    """Raise InvalidRunError for a surface without tasks."""
    if not load_surface(surface).tasks:
        raise InvalidRunError(
            f"there is no {surface} surface yet: that of version 1 was retired unscored (preregistration/history), and the "
            f"tasks of version 2 are not written. Use --surface development or --surface training."
        )


def _require_options(catalog_view: str, episode_seconds: float | None) -> None:
    """Raise UsageError for invalid options."""
    if catalog_view not in VIEWS:
        raise UsageError(unknown("catalog view", catalog_view, VIEWS))
    if episode_seconds is not None and not 0 < episode_seconds <= MAX_EPISODE_SECONDS:
        raise UsageError(
            f"--episode-seconds must be more than 0 and at most {MAX_EPISODE_SECONDS:,}, got {episode_seconds}."
        )


def _require_runnable(setup: Setup, plan: Plan, *, exploratory: bool) -> None:
    """Raise UsageError for repeats that would be copies, InvalidRunError for a grid that is empty or may not be run."""
    if plan.repeats > 1 and not agents.takes_seed(setup.agent):
        raise UsageError(
            f"--repeat {plan.repeats}: {setup.agent} takes no seed, so every repeat would be the same; leave it out."
        )
    if not plan.units:
        raise InvalidRunError(f"the {setup.surface} surface holds no tasks.")
    reason = scoring_refusal(setup.surface, plan.conditions)
    if reason:
        raise InvalidRunError(reason)
    _require_lock(setup.surface, exploratory=exploratory)


def load_run(folder: Path | str) -> Run:
    """Read a run directory's header, complete or not.

    Args:
        folder: Run directory.

    Returns:
        The run.

    Raises:
        InvalidRunError: When run.json is missing, half-written, of a newer version or holds anything wrong.

    """
    path = Path(folder)
    header = read_header(path)
    return Run(path, header, plan_of(header.plan, "run.json"))


def load_complete_run(folder: Path | str) -> CompleteRun:
    """Check, replay and measure a complete run.

    Args:
        folder: Run directory.

    Returns:
        The run with the counts of every episode.

    Raises:
        InvalidRunError: For an incomplete, duplicated, mixed or altered set of episodes, with what exactly is wrong.

    """
    return _complete(Path(folder))[0]


def _complete(folder: Path) -> tuple[CompleteRun, ReferenceData]:
    reference = load_reference(read_header(folder))
    return read_complete_run(folder, reference), reference


def aggregate(folder: Path | str, *, write: bool = True) -> Aggregate:
    """Aggregate a complete run: every measure by condition, and the counts of every episode.

    Args:
        folder: Run directory.
        write: Whether aggregate.json is written there.

    Returns:
        The aggregate.

    Raises:
        InvalidRunError: As `load_complete_run`.

    """
    result = load_complete_run(folder).aggregate()
    if write:
        write_aggregate(Path(folder), result)
    return result


def judge(
    folder: Path | str,
    *,
    write: bool = True,
    out: Path | str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Verdict:
    """Judge a complete run by the six criteria.

    Args:
        folder: Run directory.
        write: Whether aggregate.json, where the run has none yet, and verdict.json are written.
        out: The folder they are written to; the run directory unless given.
        report: Called with what is to be told besides: that a run directory takes no files (a read-only disk), which costs
            no verdict, and of a confirmatory result that it was kept, or compared with the one kept before.

    Returns:
        The verdict.

    Raises:
        InvalidRunError: As `load_complete_run`, where an aggregate.json differs from that of the shards, and where `out`
            cannot be written.

    """
    path = Path(folder)
    run, reference = _complete(path)
    result = run.aggregate()
    same = same_aggregate(path, result)
    if same is False:
        raise InvalidRunError(
            f"{path / AGGREGATE_FILE} differs from the aggregate of the shards: it was altered, or other code made it. "
            "Delete it and run the same command again."
        )
    verdict = judge_run(run, reference.protocol)
    if write:
        try:
            if same is None:
                write_aggregate(Path(out or path), result)
            write_whole(Path(out or path) / VERDICT_FILE, verdict.to_bytes())
        except InvalidRunError as error:
            if out is not None:
                raise
            report(f"{error} The verdict stands all the same; --out PATH writes it elsewhere.")
        if verdict.confirmatory:
            report(keep_or_compare(reference.protocol.results, run, verdict))
    return verdict


def reproduce(folder: Path | str, progress: Progress = lambda done, expected: None) -> int:
    """Run every episode of a complete run again, without caches, and compare every record.

    Args:
        folder: Run directory.
        progress: Called with the numbers of episodes run again so far and expected.

    Returns:
        The number of episodes run again.

    Raises:
        InvalidRunError: As `load_complete_run`, and at the first record that differs.

    """
    path = Path(folder)
    run, reference = _complete(path)
    with no_cache():
        return run_again(path, reference, lambda done: progress(done, len(run.rows)))


def _require_lock(surface: str, *, exploratory: bool) -> None:
    """Raise InvalidRunError where anything differs from the lock; an exploratory run of development needs no lock."""
    lock = read_lock(surface)
    # Decided by the surface's name: a lock file could state anything of itself.
    frozen = surface == "frozen"
    if lock is None or (exploratory and not frozen):
        return
    if frozen and lock.released:
        # A release counts only once it is committed.
        clean_commit()
    try:
        require_as_locked(lock, locked_fingerprints(surface, behaviour=frozen))
    except InvalidRunError as error:
        if frozen:
            raise
        raise InvalidRunError(
            f"{error}\nAfter an intended change: schemarouter lock write, or --exploratory for this run."
        ) from None


def _output_tokens(record: EpisodeRecord) -> int:
    """Tokens that the agent of a recorded attempt wrote."""
    return output_tokens(record, _counter())


@cache
def _counter() -> TokenCounter:
    return TokenCounter(cached_counts())
