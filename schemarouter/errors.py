"""Errors a user can meet: what came, what is allowed, the closest match, the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_PASS = 0
EXIT_GATE_FAILED = 1
EXIT_USAGE = 2
EXIT_INVALID = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
# 128 + SIGPIPE: what a shell reports for a program whose reader has closed the pipe.
EXIT_BROKEN_PIPE = 141
# What the dynamic loader, the system and orjson say, each in an error of its own kind.
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "not enough memory")


class SchemaRouterError(Exception):
    """A mistake outside the program: bad input, an altered file, a missing package. Shown without a traceback."""

    exit_code = EXIT_INVALID


class UsageError(SchemaRouterError):
    """A command or a spec string that cannot be understood."""

    exit_code = EXIT_USAGE


class InvalidRunError(SchemaRouterError):
    """A run, lock or surface that is incomplete, altered or not the preregistered one."""


def memory_failure(error: BaseException) -> str | None:
    """What says that memory ran out, of an error and of what caused it; None where nothing does."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return str(cause) or type(cause).__name__
        if isinstance(cause, ImportError | OSError | ValueError):
            for line in str(cause).splitlines():
                if any(part in line.lower() for part in _NO_MEMORY):
                    return line.strip().rpartition("/")[2]
        cause = cause.__cause__ or cause.__context__
    return None


def closest(given: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the allowed word nearest to `given`, or an empty string."""
    matches = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def unknown(kind: str, given: str, allowed: Iterable[str], *, at_most: int | None = None) -> str:
    """Say that `given` is no known `kind`, with the closest match and the known ones.

    Of more than `at_most` known ones the nearest `at_most` are listed, with the number of all.
    """
    names = sorted(allowed)
    if at_most is not None and len(names) > at_most:
        near = ", ".join(difflib.get_close_matches(given, names, n=at_most, cutoff=0.0))
        return f"unknown {kind} {given!r}.{closest(given, names)} Known: {len(names)}, the nearest of them {near}."
    return f"unknown {kind} {given!r}.{closest(given, names)} Known: {', '.join(names) or 'none'}."
