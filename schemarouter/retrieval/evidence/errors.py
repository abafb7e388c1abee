"""What an error class calls for: the same call again, or a corrective action by another capability.

Error classes are names such as ``record_locked``. The words of transient ones come from HTTP (408, 429, 502 to 504), gRPC
(UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED) and everyday English. Corrective actions are the verbs with which API
references name what resolves an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemarouter.retrieval.evidence.words import stem

_TRANSIENT_WORDS = """
    timeout busy unavailable throttled overloaded temporary temporarily retry transient interrupted congestion backoff
    deadlock outage
"""
# Pairs, since each word alone means other things: an interest rate, a password reset.
_TRANSIENT_PAIRS = tuple(
    frozenset(stem(word) for word in pair.split()) for pair in ("rate limit", "rate limited", "connection reset")
)
_TRANSIENT = frozenset(stem(word) for word in _TRANSIENT_WORDS.split())
_CORRECTIVE_ACTIONS: Mapping[str, str] = {
    "expired": "renew refresh reissue extend request issue qualify",
    "lease": "renew",
    "session": "renew refresh",
    "token": "renew refresh",
    "locked": "unlock release request",
    "lock": "unlock release",
    "hold": "release lift approve",
    "held": "release lift",
    "blocked": "unblock release lift clear",
    "quota": "switch raise increase region free",
    "exceeded": "switch raise increase",
    "limit": "switch raise increase",
    "full": "switch raise free",
    "stale": "current latest",
    "revision": "current latest",
    "conflict": "current latest",
    "outdated": "current latest",
    "superseded": "current latest reissue qualify",
    "mismatch": "current convert",
    "unit": "convert",
    "consent": "record consent capture",
    "missing": "record request create register",
    "required": "record request grant approve confirm",
    "approval": "approve request",
    "denied": "grant request",
    "access": "grant request",
    "forbidden": "grant request",
    "permission": "grant request",
    "unauthorized": "grant renew",
    "overdue": "start schedule calibration pay settle",
    "calibration": "start calibration",
    "suspended": "reinstate resume reactivate lift",
    "inactive": "reactivate activate",
    "closed": "reopen",
    "cancelled": "reinstate reopen",
    "offline": "restart switch wake",
    "asleep": "wake",
    "insufficient": "top reserve release",
    "unverified": "verify",
    "verification": "verify",
    "address": "verify",
    "duplicate": "merge find",
    "maintenance": "switch",
    "unqualified": "qualify",
    "credit": "release credit hold",
}
_CORRECTIVE_STEMS = {
    stem(word): tuple(stem(verb) for verb in verbs.split()) for word, verbs in _CORRECTIVE_ACTIONS.items()
}


def is_transient(error_class: str) -> bool:
    """Whether the same call may succeed the next time."""
    stems = {stem(word) for word in error_class.split("_")}
    return bool(stems & _TRANSIENT) or any(pair <= stems for pair in _TRANSIENT_PAIRS)


def error_stems(error_class: str) -> dict[str, float]:
    """Return the stems of the words of an error class, each with weight 1."""
    return {stem(word): 1.0 for word in error_class.split("_") if word}


def corrective_stems(error_class: str) -> dict[str, float]:
    """Return the stems of its corrective actions, each with weight 1; empty for a class without known words."""
    return {verb: 1.0 for word in error_class.split("_") for verb in _CORRECTIVE_STEMS.get(stem(word), ())}
