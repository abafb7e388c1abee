"""Records checked, replayed and measured, here or in other processes; what comes of each in the order of the records."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context, parent_process
from typing import NamedTuple, Protocol

from conditions.running.engines.process_local import Made, leave_interruptions
from conditions.running.provenance import whole_fingerprint
from conditions.storage.shards import RawLine
from gates.measures import SR_CONDITIONS, Figures, measure
from gates.replay import Replay
from preregistration.protocol import Protocol as Preregistration
from preregistration.protocol import load_protocol
from schemarouter.catalog import Catalog
from schemarouter.environ import ONE_THREAD, environment
from schemarouter.errors import InvalidRunError
from schemarouter.gc_tuning import seldom_collected
from schemarouter.tokens import TokenCounter
from surface.loader import Surface, load_catalogs, load_surface

# Enough work to hide the way there and back, and for each process one batch at work and some waiting.
_BATCH = 32
_BATCHES_A_WORKER = 4
# As many as are judged in the time that other processes take to begin and to know the world, twice over.
_AT_HOME = 2_000


class Judged(NamedTuple):
    """What a record gives: its figures, None where the machine ended the attempt, and the ranking that an SR arm opened with."""

    figures: Figures | None
    opening: tuple[str, ...] | None


@dataclass(frozen=True)
class Judge:
    """Checks, replays and measures records. `timed` says whether episodes of the run could end because their time was up."""

    protocol: Preregistration
    surface: Surface
    catalogs: Mapping[int, Catalog]
    timed: bool

    @cached_property
    def _counter(self) -> TokenCounter:
        return TokenCounter()

    def __call__(self, line: RawLine) -> Judged:
        """Replay a record and measure it. Raises InvalidRunError, saying where it stands, for what cannot have happened so."""
        record, where = line.record(), line.place
        catalog, task = self.catalogs[record.catalog], self.surface.by_id[record.task]
        timeline = Replay(record, task, catalog, self.protocol, self._counter, where).run()
        opened = timeline.exposures and record.condition in SR_CONDITIONS
        opening = timeline.exposures[0].ranking if opened else None
        if record.out_of_time and not self.timed:
            raise InvalidRunError(f"{where}: {record.episode_id} ended by a time limit, and this run has none.")
        if record.infrastructure:
            return Judged(None, opening)
        return Judged(measure(record, timeline, task.key, self.protocol.conditions), opening)


@dataclass(frozen=True)
class Recipe:
    """What other processes need to make a judge of their own: a few words, so that one which dies at once blocks nobody."""

    surface: str
    timed: bool
    code: str

    def __call__(self) -> Judge:
        """The judge. Raises SchemaRouterError where this is other code, and for what is not there."""
        if self.code != whole_fingerprint():
            raise InvalidRunError(
                "a process that judges records has other code; it was changed meanwhile. Run it again."
            )
        protocol = load_protocol(self.surface)
        return Judge(protocol, load_surface(self.surface), load_catalogs(protocol.catalogs), self.timed)


class Case(NamedTuple):
    """A record to be judged, and the place of its episode in the grid."""

    line: RawLine
    place: int


class Bench(Protocol):
    """Takes records in, and gives back what comes of them in the same order. Raises what judging the next of them raises."""

    def take(self, case: Case) -> Iterator[tuple[Case, Judged]]:
        """Take one in, and yield what has come of some before it."""

    def rest(self) -> Iterator[tuple[Case, Judged]]:
        """Wait for all that has not come yet."""


class _Here:
    """One record after the other, in this process."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def take(self, case: Case) -> Iterator[tuple[Case, Judged]]:
        yield case, self._judge(case.line)

    def rest(self) -> Iterator[tuple[Case, Judged]]:
        yield from ()


class _Elsewhere:
    """Batches of records in other processes; never more of them at once than these need to be at work.

    The first `at_home` records are judged here: a run of few is over before another process has begun.
    """

    def __init__(self, judge: Judge, pool: ProcessPoolExecutor, workers: int, at_home: int) -> None:
        self._judge = judge
        self._pool = pool
        self._most = workers * _BATCHES_A_WORKER
        self._at_home = at_home
        self._batch: list[Case] = []
        self._out: deque[tuple[list[Case], Future[list[Judged | InvalidRunError]]]] = deque()

    def take(self, case: Case) -> Iterator[tuple[Case, Judged]]:
        if self._at_home:
            self._at_home -= 1
            yield case, self._judge(case.line)
            return
        self._batch.append(case)
        if len(self._batch) == _BATCH:
            self._submit()
        while len(self._out) > self._most:
            yield from self._first()

    def rest(self) -> Iterator[tuple[Case, Judged]]:
        self._submit()
        while self._out:
            yield from self._first()

    def _submit(self) -> None:
        if self._batch:
            with _whole():
                self._out.append((self._batch, self._pool.submit(_work, [case.line for case in self._batch])))
            self._batch = []

    def _first(self) -> Iterator[tuple[Case, Judged]]:
        cases, future = self._out.popleft()
        with _whole():
            judged = future.result()
        for case, one in zip(cases, judged, strict=False):
            if isinstance(one, InvalidRunError):
                raise one
            yield case, one


@contextmanager
def _whole() -> Iterator[None]:
    """Say what it means that a pool is broken."""
    try:
        yield
    except BrokenProcessPool:
        raise InvalidRunError(
            "a process that judged records has ended by itself; nothing was written. Is there enough memory? "
            "Run the same command again, perhaps with fewer --workers."
        ) from None


@contextmanager
def bench(judge: Judge, workers: int) -> Iterator[Bench]:
    """Where records are judged: in this process, or in so many others (spawned) for the time of the block.

    Those make the world of the surface's name anew.
    """
    if workers == 1:
        yield _Here(judge)
        return
    recipe = Recipe(judge.surface.name, judge.timed, whole_fingerprint())
    with environment(ONE_THREAD):
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (recipe,))
        try:
            yield _Elsewhere(judge, pool, workers, _AT_HOME)
        finally:
            pool.shutdown(cancel_futures=True)


_judge = Made[Judge]()


def _begin(make: Callable[[], Judge]) -> None:
    leave_interruptions()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _judge.make(make)


def _end_with_parent() -> None:
    """A process that waits for work would wait for ever where nobody is left to give it any."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(lines: Sequence[RawLine]) -> list[Judged | InvalidRunError]:
    """What comes of each record, up to the first that cannot have happened so."""
    judge = _judge.get()
    judged: list[Judged | InvalidRunError] = []
    with seldom_collected():
        for line in lines:
            try:
                judged.append(judge(line))
            except InvalidRunError as error:
                return [*judged, error]
    return judged
