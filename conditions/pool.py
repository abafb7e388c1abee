"""A pool of processes on this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from multiprocessing import get_context
from time import monotonic

from pebble import ProcessExpired, ProcessPool

from conditions.engine import MakeRunner, Outcome, drive, most_seconds
from conditions.runner import Runner
from conditions.work import NO_LIMITS, Done, Job, Limits, perform
from schemarouter.tokens import load_tokenizer

# Small matrices: several threads of a library in each of several processes only get into each other's way.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# One batch at work and one waiting for each process, so that none waits for the way there and back.
_BATCHES_A_WORKER = 2


class Pool:
    """Does jobs in several processes, each with a retriever and an agent of its own.

    `make` builds what runs an episode. It goes to other processes: a function of a module, or an object that can be pickled.
    """

    def __init__(self, make: MakeRunner, workers: int, limits: Limits = NO_LIMITS) -> None:
        self._make = make
        self._workers = workers
        self._limits = limits

    def run(self, jobs: Iterable[Job]) -> Generator[Done, None, None]:
        """Yield what came of each job."""
        with environment(ONE_THREAD):
            pool = ProcessPool(
                max_workers=self._workers,
                initializer=_begin,
                initargs=(self._make, self._limits),
                context=get_context("spawn"),
            )
            try:
                yield from drive(_Crew(pool, self._workers, self._limits), jobs, self._limits)
                pool.close()  # type: ignore[no-untyped-call]
            finally:
                with _undisturbed():
                    # Only where something was raised is there work left, which nobody waits for.
                    if pool.active:
                        pool.stop()  # type: ignore[no-untyped-call]
                    pool.join()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold interruptions off: a second Ctrl-C, while the first one's workers are being stopped, would leave them behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Crew:
    def __init__(self, pool: ProcessPool, workers: int, limits: Limits) -> None:
        self._pool = pool
        self._most = workers * _BATCHES_A_WORKER
        self._limits = limits
        self._out: dict[Future[list[Done]], tuple[tuple[Job, ...], float]] = {}

    def room(self) -> bool:
        return len(self._out) < self._most

    def submit(self, jobs: tuple[Job, ...]) -> None:
        timeout = most_seconds(jobs, self._limits)
        future = self._pool.schedule(_work, args=(self._limits, jobs), timeout=timeout)
        self._out[future] = jobs, monotonic()

    def wait(self) -> list[Outcome]:
        if not self._out:
            return []
        finished, _ = wait(self._out, return_when=FIRST_COMPLETED)
        return [self._outcome(future, *self._out.pop(future)) for future in finished]

    def _outcome(self, future: Future[list[Done]], jobs: tuple[Job, ...], since: float) -> Outcome:
        try:
            return Outcome(jobs, future.result())
        except ProcessExpired as error:
            return Outcome(jobs, None, died=f"the worker ended with {_cause(error.exitcode)}")
        except TimeoutError:
            # The pool goes by the clock on the wall. Where that was set forward nobody was late.
            most = most_seconds(jobs, self._limits)
            if most is not None and monotonic() - since < most:
                return Outcome(jobs, None, died="the worker was killed before its time was up: the clock was set")
            return Outcome(jobs, None, late=True)


def _cause(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


# What this worker runs its episodes with, or why it cannot.
_made: list[Runner | Exception] = []


def _begin(make: MakeRunner, limits: Limits) -> None:
    """Build what a worker needs, before anything is asked of it and before its time counts."""
    # An interruption is for the process that writes; it stops the others itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        runner = make()
        if limits.episode_seconds is not None:
            load_tokenizer()
        _made[:] = [runner]
    except Exception as error:
        # Told with the first batch: what is raised here would only be a worker that ended.
        _made[:] = [error]


def _work(limits: Limits, jobs: tuple[Job, ...]) -> list[Done]:
    (made,) = _made
    if isinstance(made, Exception):
        raise made
    return [perform(made, job, limits) for job in jobs]


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started in the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
