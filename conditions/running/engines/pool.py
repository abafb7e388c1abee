"""A pool of processes on this machine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from time import monotonic

from pebble import ProcessExpired, ProcessPool

from conditions.running.engines.base import BatchOutcome, MakeRunner, WorkersLostError, drive, most_seconds
from conditions.running.engines.jobs import NO_LIMITS, Done, Job, Limits, perform
from conditions.running.engines.process_local import ProcessLocal, leave_interruptions
from conditions.running.runner import Runner
from schemarouter.environ import ONE_THREAD, environment
from schemarouter.gc_tuning import reduced_gc
from schemarouter.tokens import load_tokenizer

# One batch at work and one waiting for each process, so that none waits for the way there and back.
_BATCHES_A_WORKER = 2
# A pool whose workers end before they took any work is broken: so many in a row are replaced with no batch done.
_MAX_BROKEN_POOLS = 5
# How often it is looked whether a pool still works, in seconds: of a batch that it had just been given it may never say so.
_LOOK_SECONDS = 1.0


class Pool:
    """Does jobs in several processes, each with a retriever and an agent of its own.

    `make` builds what runs an episode. It goes to other processes: a function of a module, or an object that can be pickled.
    """

    def __init__(self, make: MakeRunner, workers: int, limits: Limits = NO_LIMITS) -> None:
        self._make = make
        self._workers = workers
        self._limits = limits

    def run(self, jobs: Iterable[Job]) -> Generator[Done, None, None]:
        """Yield what came of each job. Raises WorkersLostError where no worker lives long enough to do any."""
        with environment(ONE_THREAD):
            pool = _PoolWorkers(self._new_pool, self._workers, self._limits)
            try:
                yield from drive(pool, jobs, self._limits)
            finally:
                pool.shutdown()

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(
            max_workers=self._workers,
            initializer=_begin,
            initargs=(self._make, self._limits),
            context=get_context("spawn"),
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold interruptions off: a second Ctrl-C, while the first one's workers are being stopped, would leave them behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _PoolWorkers:
    def __init__(self, new_pool: Callable[[], ProcessPool], workers: int, limits: Limits) -> None:
        self._new_pool = new_pool
        self._pool = new_pool()
        self._broken = 0
        self._most = workers * _BATCHES_A_WORKER
        self._limits = limits
        self._out: dict[Future[list[Done]], tuple[tuple[Job, ...], float]] = {}

    def has_capacity(self) -> bool:
        return len(self._out) < self._most

    def submit(self, jobs: tuple[Job, ...]) -> None:
        timeout = most_seconds(jobs, self._limits)
        future: Future[list[Done]]
        try:
            future = self._pool.schedule(_work, args=(self._limits, jobs), timeout=timeout)
        except RuntimeError as error:
            # The pool has broken since it was last looked at, or could not be started.
            future = Future()
            future.set_exception(BrokenProcessPool(str(error)))
        self._out[future] = jobs, monotonic()

    def wait(self) -> list[BatchOutcome]:
        while self._out:
            finished, _ = wait(self._out, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            broken = any(map(_is_broken, finished)) or not self._pool.active
            if broken:
                self._replace_pool()
                finished = set(self._out)
            if finished:
                outcomes = [self._outcome(future, *self._out.pop(future)) for future in finished]
                self._count(outcomes, broken=broken)
                return outcomes
        return []

    def shutdown(self) -> None:
        """End every worker; what is still out is not waited for."""
        with _undisturbed():
            _end(self._pool)

    def _replace_pool(self) -> None:
        with _undisturbed():
            _end(self._pool)
            self._pool = self._new_pool()

    def _count(self, outcomes: list[BatchOutcome], *, broken: bool) -> None:
        if any(outcome.done is not None for outcome in outcomes):
            self._broken = 0
        elif broken:
            self._broken += 1
            if self._broken > _MAX_BROKEN_POOLS:
                raise WorkersLostError(
                    f"the worker processes ended before they did anything, {self._broken} times in a row; what was done is kept. "
                    "Is there enough memory? The same command goes on, perhaps with fewer --workers."
                )

    def _outcome(self, future: Future[list[Done]], jobs: tuple[Job, ...], since: float) -> BatchOutcome:
        if not future.done() or _is_broken(future):
            return BatchOutcome(jobs, None, undone=True)
        try:
            return BatchOutcome(jobs, future.result())
        except ProcessExpired as error:
            return BatchOutcome(jobs, None, died=f"the worker ended with {_cause(error.exitcode)}")
        except TimeoutError:
            # The pool goes by the clock on the wall. Where that was set forward nobody was late.
            most = most_seconds(jobs, self._limits)
            if most is not None and monotonic() - since < most:
                return BatchOutcome(jobs, None, died="the worker was killed before its time was up: the clock was set")
            return BatchOutcome(jobs, None, late=True)


def _is_broken(future: Future[list[Done]]) -> bool:
    return future.done() and isinstance(future.exception(), BrokenProcessPool)


def _end(pool: ProcessPool) -> None:
    """Stop what is left of a pool, and wait until it has ended."""
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()


def _cause(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


_runner = ProcessLocal[Runner]()


def _begin(make: MakeRunner, limits: Limits) -> None:
    """Build what a worker needs, before anything is asked of it and before its time counts."""
    leave_interruptions()
    _runner.make(partial(_ready, make, limits))


def _ready(make: MakeRunner, limits: Limits) -> Runner:
    runner = make()
    if limits.episode_seconds is not None:
        load_tokenizer()
    return runner


def _work(limits: Limits, jobs: tuple[Job, ...]) -> list[Done]:
    runner = _runner.get()
    with reduced_gc():
        return [perform(runner, job, limits) for job in jobs]
