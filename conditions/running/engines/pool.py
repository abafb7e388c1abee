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

from conditions.running.engines.base import BatchOutcome, MakeRunner, WorkersLostError, batch_timeout, drive
from conditions.running.engines.jobs import NO_LIMITS, Done, Job, Limits, perform
from conditions.running.engines.process_local import ProcessLocal, ignore_interrupts
from conditions.running.interrupts import blocked_interrupts
from conditions.running.runner import Runner
from schemarouter.environ import ONE_THREAD, environment
from schemarouter.gc_tuning import reduced_gc
from schemarouter.tokens import load_tokenizer

# For each process one batch at work and one waiting, so that no process waits for its next batch to arrive.
_BATCHES_PER_WORKER = 2
# A pool whose workers end before they took any work is broken; so many are replaced in a row.
_MAX_BROKEN_POOLS = 5
# Seconds between checks that a pool still works: a pool that breaks may never report the batch it had just been given.
_POLL_SECONDS = 1.0


class Pool:
    """Runs jobs in several processes, each with a retriever and an agent of its own.

    `make` builds the runner of a process; it is pickled, so a function of a module or an object that can be pickled.
    """

    def __init__(self, make: MakeRunner, workers: int, limits: Limits = NO_LIMITS) -> None:
        self._make = make
        self._workers = workers
        self._limits = limits

    def run(self, jobs: Iterable[Job]) -> Generator[Done, None, None]:
        """Yield the outcome of each job. Raises WorkersLostError where no worker lives long enough to run any."""
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
def _interrupts_ignored() -> Iterator[None]:
    """Ignore interrupts in the block: a second Ctrl-C, while workers are being stopped, would leave some behind."""
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
        self._max_batches = workers * _BATCHES_PER_WORKER
        self._limits = limits
        self._out: dict[Future[list[Done]], tuple[tuple[Job, ...], float]] = {}

    def has_capacity(self) -> bool:
        return len(self._out) < self._max_batches

    def submit(self, jobs: tuple[Job, ...]) -> None:
        timeout = batch_timeout(jobs, self._limits)
        future: Future[list[Done]]
        try:
            # The first batch starts the threads that start the workers.
            with blocked_interrupts():
                future = self._pool.schedule(_work, args=(self._limits, jobs), timeout=timeout)
        except RuntimeError as error:
            # The pool has broken since the last check, or could not be started.
            future = Future()
            future.set_exception(BrokenProcessPool(str(error)))
        self._out[future] = jobs, monotonic()

    def wait(self) -> list[BatchOutcome]:
        while self._out:
            finished, _ = wait(self._out, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
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
        """End every worker without waiting for its batch."""
        with _interrupts_ignored():
            _end(self._pool)

    def _replace_pool(self) -> None:
        with _interrupts_ignored():
            _end(self._pool)
            self._pool = self._new_pool()

    def _count(self, outcomes: list[BatchOutcome], *, broken: bool) -> None:
        if any(outcome.done is not None for outcome in outcomes):
            self._broken = 0
        elif broken:
            self._broken += 1
            if self._broken > _MAX_BROKEN_POOLS:
                raise WorkersLostError(
                    f"the worker processes ended before they did any work, {self._broken} times in a row; finished work is kept. "
                    "Is there enough memory? The same command resumes the run, perhaps with fewer --workers."
                )

    def _outcome(self, future: Future[list[Done]], jobs: tuple[Job, ...], since: float) -> BatchOutcome:
        if not future.done() or _is_broken(future):
            return BatchOutcome(jobs, None, undone=True)
        try:
            return BatchOutcome(jobs, future.result())
        except ProcessExpired as error:
            return BatchOutcome(jobs, None, died=f"the worker ended with {_cause(error.exitcode)}")
        except TimeoutError:
            # The pool measures by the system's clock. Where that was set forward no batch was late.
            allowed = batch_timeout(jobs, self._limits)
            if allowed is not None and monotonic() - since < allowed:
                return BatchOutcome(jobs, None, died="the worker was killed before its time was up: the clock was set")
            return BatchOutcome(jobs, None, late=True)


def _is_broken(future: Future[list[Done]]) -> bool:
    return future.done() and isinstance(future.exception(), BrokenProcessPool)


def _end(pool: ProcessPool) -> None:
    """Stop a pool and wait until its processes have ended."""
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()


def _cause(code: int) -> str:
    """How a process with this exit code ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


_runner = ProcessLocal[Runner]()


def _begin(make: MakeRunner, limits: Limits) -> None:
    """Build a worker's runner, before its first batch and before time counts."""
    ignore_interrupts()
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
