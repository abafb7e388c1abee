"""The names of the five conditions, each written here once."""

from __future__ import annotations

from typing import Final

STATIC: Final = "SR-5-STATIC"
PROGRESSIVE: Final = "SR-PROGRESSIVE-STATIC"
STATE_AWARE: Final = "SR-5-STATE-AWARE"
FULL: Final = "FULL"
ORACLE: Final = "ORACLE"
# The conditions that retrieve: they start from the same ranking, and recall and recovery are measured on them.
SR_CONDITIONS: Final = (STATIC, PROGRESSIVE, STATE_AWARE)
# The conditions that rank nothing: they show that tasks can be solved, and are no outcome.
UNRANKED: Final = frozenset({FULL, ORACLE})
