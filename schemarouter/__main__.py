"""The console script and ``python -m schemarouter``; an interruption while the program loads ends it with one line too."""

from __future__ import annotations

import sys

from schemarouter.errors import EXIT_INTERRUPTED, EXIT_INVALID, memory_failure


def main() -> None:
    """Load the program and run it."""
    try:
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


if __name__ == "__main__":
    main()
