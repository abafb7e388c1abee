"""A Ray cluster, or a local Ray on this machine: one actor for each copy of retriever and agent."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterable
from time import monotonic
from typing import Any

from conditions.running.engines.base import BatchOutcome, MakeRunner, batch_timeout, drive
from conditions.running.engines.jobs import NO_LIMITS, Done, Job, Limits, perform
from conditions.running.runner import Runner
from schemarouter.environ import ONE_THREAD, environment
from schemarouter.errors import SchemaRouterError

# Seconds between checks of batches that have a time limit.
_POLL_SECONDS = 0.5
_CONNECT_SECONDS = 10.0


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise SchemaRouterError("Ray is not installed: pip install 'schemarouter-research[ray]'.") from None
    return ray


def _require_listening(address: str) -> None:
    """Raise OSError where nothing listens at ``host:port``: Ray itself would retry for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()


class _Worker:
    """The actor: one copy of retriever and agent."""

    def __init__(self, make: MakeRunner, limits: Limits) -> None:
        self._runner: Runner = make()
        self._limits = limits

    def work(self, jobs: tuple[Job, ...]) -> list[Done]:
        """Run a batch."""
        return [perform(self._runner, job, self._limits) for job in jobs]


class RayCluster:
    """Runs jobs as calls of Ray actors. Raises SchemaRouterError where Ray is missing or cannot be reached."""

    def __init__(self, make: MakeRunner, workers: int, limits: Limits = NO_LIMITS, address: str = "") -> None:
        self._ray = _ray()
        self._make = make
        self._workers = workers
        self._limits = limits
        self._address = address

    def run(self, jobs: Iterable[Job]) -> Generator[Done, None, None]:
        """Yield the outcome of each job; a local Ray that this process started is stopped at the end."""
        ray = self._ray
        with environment(ONE_THREAD):
            self._join()
            try:
                yield from drive(_PoolWorkers(ray, self._make, self._workers, self._limits), jobs, self._limits)
            finally:
                ray.shutdown()

    def _join(self) -> None:
        """Join the cluster, or start a local one, whose processes inherit this one's environment."""
        try:
            if self._address:
                _require_listening(self._address)
                self._ray.init(self._address, log_to_driver=False, runtime_env={"env_vars": ONE_THREAD})
            else:
                self._ray.init("local", num_cpus=self._workers, include_dashboard=False, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise SchemaRouterError(f"Ray at {self._address or 'this machine'} cannot be used ({error}).") from None


class _PoolWorkers:
    def __init__(self, ray: Any, make: MakeRunner, workers: int, limits: Limits) -> None:
        self._ray = ray
        self._limits = limits
        self._make = make
        self._idle = [self._spawn() for _ in range(workers)]
        self._out: dict[Any, tuple[Any, tuple[Job, ...], float]] = {}

    def _spawn(self) -> Any:
        return self._ray.remote(_Worker).options(num_cpus=1).remote(self._make, self._limits)

    def has_capacity(self) -> bool:
        return bool(self._idle)

    def submit(self, jobs: tuple[Job, ...]) -> None:
        actor = self._idle.pop()
        self._out[actor.work.remote(jobs)] = (actor, jobs, monotonic())

    def wait(self) -> list[BatchOutcome]:
        while self._out:
            timeout = None if self._limits.episode_seconds is None else _POLL_SECONDS
            ready, _ = self._ray.wait(list(self._out), num_returns=1, timeout=timeout)
            late = [reference for reference in self._out if reference not in ready and self._is_late(reference)]
            if ready or late:
                return [self._outcome(reference) for reference in ready] + [self._killed(item) for item in late]
        return []

    def _is_late(self, reference: Any) -> bool:
        _, jobs, since = self._out[reference]
        allowed = batch_timeout(jobs, self._limits)
        return allowed is not None and monotonic() - since > allowed

    def _outcome(self, reference: Any) -> BatchOutcome:
        actor, jobs, _ = self._out.pop(reference)
        try:
            done = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            # What the worker's code raised, as it would be raised in this process.
            raise (error.cause or error) from None
        except self._ray.exceptions.RayError as error:
            self._idle.append(self._spawn())
            return BatchOutcome(jobs, None, died=f"the worker was lost ({type(error).__name__})")
        self._idle.append(actor)
        return BatchOutcome(jobs, done)

    def _killed(self, reference: Any) -> BatchOutcome:
        actor, jobs, _ = self._out.pop(reference)
        self._ray.kill(actor)
        self._idle.append(self._spawn())
        return BatchOutcome(jobs, None, late=True)
