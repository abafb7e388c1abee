"""The engines by name."""

from __future__ import annotations

from typing import Literal, get_args

from conditions.running.engines.base import Engine, InProcess
from conditions.running.engines.jobs import NO_LIMITS, Limits
from conditions.running.runner import Setup
from schemarouter.errors import UsageError, unknown

EngineName = Literal["local", "ray"]
MAX_WORKERS = 10_000


def make_engine(name: str, setup: Setup, workers: int, limits: Limits = NO_LIMITS, address: str = "") -> Engine:
    """Make the engine: this process for one local worker, else `workers` processes, or actors of a Ray cluster at `address`.

    Raises UsageError for options that are invalid or do not go together, SchemaRouterError without Ray.
    """
    if name not in get_args(EngineName):
        raise UsageError(unknown("engine", name, get_args(EngineName)))
    if not 1 <= workers <= MAX_WORKERS:
        raise UsageError(f"--workers is a whole number from 1 to {MAX_WORKERS:,}, got {workers}.")
    if address and name != "ray":
        raise UsageError("--address names a Ray cluster; give --engine ray too.")
    if name == "ray":
        from conditions.running.engines.ray import RayCluster

        return RayCluster(setup, workers, limits, address)
    if workers == 1:
        return InProcess(setup(), limits)
    from conditions.running.engines.pool import Pool

    return Pool(setup, workers, limits)
