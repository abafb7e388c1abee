"""The console script and ``python -m schemarouter``; an interruption while the program loads ends it with one line too."""

from __future__ import annotations

import sys

from schemarouter.errors import EXIT_INTERRUPTED, EXIT_INVALID, memory_failure

# Below this OpenBLAS fails to load, or tries for ever.
_MIN_ADDRESS_SPACE = 160 << 20


def main() -> None:
    """Load the program and run it."""
    try:
        _require_address_space()
        from schemarouter.cli.app import main as program

        program()
    except KeyboardInterrupt:
        print("interrupted; what was done is kept.", file=sys.stderr)  # noqa: T201 (also where stderr is closed)
        sys.exit(EXIT_INTERRUPTED)
    except (ImportError, MemoryError, OSError) as error:
        reason = memory_failure(error)
        if reason is None:
            raise
        print(f"error: not enough memory ({reason}).", file=sys.stderr)  # noqa: T201 (also where stderr is closed)
        sys.exit(EXIT_INVALID)


def _require_address_space() -> None:
    """Raise MemoryError under a limit in which the numeric libraries do not load: some versions then wait for ever."""
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _MIN_ADDRESS_SPACE:
        raise MemoryError(f"the limit of {limit >> 20} MB address space is below {_MIN_ADDRESS_SPACE >> 20} MB")


if __name__ == "__main__":
    main()
