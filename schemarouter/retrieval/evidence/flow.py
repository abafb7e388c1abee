"""Features of each entry from the observed state: what it lacks, supplies and takes up, and what failed and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemarouter.retrieval.evidence.contracts import Bools, Contracts, Floats, Ints
from schemarouter.retrieval.evidence.errors import corrective_stems, error_stems, is_transient
from schemarouter.retrieval.evidence.relevance import QueryEvidence, Relevance
from schemarouter.state import ExecutionState

# Features by kind of evidence: an ablation removes one kind, and an explanation is grouped by kind.
GROUPS: dict[str, tuple[str, ...]] = {
    "relevance": ("relevance",),
    "needs": ("ready", "one_missing", "more_missing", "missing_unnamed"),
    "supply": ("gives_missing", "gives_missing_here", "gives_missing_log", "gives_missing_fitting"),
    "flow": (
        "takes_observed", "takes_latest", "takes_unused", "takes_unused_relevant", "unused_share", "quantity_of_latest",
        "quantity_of_latest_relevant", "meaning_of_latest", "fields_observed", "same_provider", "latest_provider",
    ),
    "conversion": ("converts", "converts_latest", "unit_unmet"),
    "history": ("finished", "finished_relevant"),
    "error": (
        "retry", "failed", "resumed", "error_words", "cure_words", "error_words_here", "cure_words_here",
        "shares_identifier",
    ),
    "effect": ("writes", "destroys"),
}  # fmt: skip
FEATURES: tuple[str, ...] = tuple(name for names in GROUPS.values() for name in names)
INDEX = {name: index for index, name in enumerate(FEATURES)}
PHASES: tuple[str, ...] = ("opening", "after_success", "after_failure")
_FAILED = ("error", "blocked")
# Relevance is the log odds against the best entry, cut off below this.
_MIN_RELEVANCE = -10.0
_MIN_SUPPLY = 0.01


@dataclass(frozen=True)
class History:
    """Which entries have run.

    Attributes:
        finished: Entries whose outputs were observed, shape (n,).
        pending: Entries that failed and have not succeeded since, shape (n,).
        latest: Index of the entry that first ran last; None where none has.
        executed: Indices of the entries that ran, in the order of their first calls.
    """

    finished: Bools
    pending: Bools
    latest: int | None
    executed: Ints

    @classmethod
    def of(cls, state: ExecutionState, contracts: Contracts) -> History:
        """Infer the history from a state, which holds the order of first calls, what was observed, and how the last turn ended.

        A route is finished when all its outputs were observed, or one that no other executed route gives, or when it ran last and
        the last turn succeeded. Where the last turn failed and no route is pending, the latest one is; where one is pending, the
        failure may have been its second.
        """
        finished = np.zeros(contracts.size, np.bool_)
        pending = np.zeros(contracts.size, np.bool_)
        fields = frozenset(state.observation_field_names)
        executed = [contracts.position[r] for r in state.executed_registered_route_ids if r in contracts.position]
        failed = state.last_execution_status in _FAILED
        for index in executed:
            outputs = contracts.outputs[index]
            others = frozenset().union(*(contracts.outputs[other] for other in executed if other != index))
            done = outputs <= fields or bool((outputs - others) & fields) or (index == executed[-1] and not failed)
            finished[index], pending[index] = done, not done
        if failed and executed and not pending.any():
            finished[executed[-1]], pending[executed[-1]] = False, True
        return cls(finished, pending, executed[-1] if executed else None, np.asarray(executed, np.int64))


def phase_of(state: ExecutionState) -> int:
    """Return the index in `PHASES` of the phase that a state is in."""
    if state.last_execution_status in _FAILED:
        return 2
    return 1 if state.executed_registered_route_ids else 0


class Flow:
    """Computes `FEATURES` for every entry of `contracts`."""

    def __init__(self, contracts: Contracts, relevance: Relevance) -> None:
        self._c = contracts
        self._relevance = relevance

    def features(self, state: ExecutionState, query: QueryEvidence, history: History, log_odds: Floats) -> Floats:
        """Compute the features of every entry.

        Args:
            state: What was observed.
            query: The evidence of the request.
            history: Which entries have run.
            log_odds: Relevance of each entry to the request, shape (n,), 0 for the best.

        Returns:
            The features, shape (n, len(FEATURES)).
        """
        c = self._c
        table = np.zeros((c.size, len(FEATURES)))
        odds = np.exp(log_odds)
        goal = np.where(history.finished, 0.0, odds)
        goal[history.pending] = 1.0
        table[:, INDEX["relevance"]] = np.maximum(log_odds, _MIN_RELEVANCE)
        table[:, INDEX["writes"]] = ~c.read
        table[:, INDEX["destroys"]] = c.destructive
        have = self._have(state, history)
        missing, ready = self._needs(table, query, have)
        self._supply(table, query, history, goal, missing)
        if history.executed.size:
            self._takes(table, state, history, have, ready, odds)
            self._conversion(table, state, history, goal)
            self._history(table, state, history, odds, ready)
        return table

    def _have(self, state: ExecutionState, history: History) -> Floats:
        """Number of identifiers observed, by kind: one where a kind was observed, more where several entries gave it."""
        c = self._c
        seen = np.zeros(len(c.kinds))
        for name in (*state.observation_semantic_ids, *state.observation_field_names):
            if name in c.kind_index:
                seen[c.kind_index[name]] = 1.0
            for longer in c.suffixes.get(name, ()):
                seen[c.kind_index[longer]] = 1.0
        done = history.finished[c.gives.entry]
        given = np.bincount(c.gives.what[done], minlength=len(c.kinds))
        return np.where(seen > 0, np.maximum(given, 1.0), 0.0)

    def _needs(self, table: Floats, query: QueryEvidence, have: Floats) -> tuple[Floats, Bools]:
        """Number of identifiers that each edge of `contracts.needs` still lacks, and which entries lack none."""
        c = self._c
        what = c.needs.what
        missing = np.maximum(c.needs.weight - have[what] - query.literal_kinds[what], 0.0)
        lacking = c.needs.total(missing, c.size)
        ready: Bools = np.asarray(lacking == 0)
        table[:, INDEX["ready"]] = ready
        table[:, INDEX["one_missing"]] = lacking == 1
        table[:, INDEX["more_missing"]] = lacking > 1
        if not query.has_literal:
            table[:, INDEX["missing_unnamed"]] = ~ready
        return missing, ready

    def _supply(self, table: Floats, query: QueryEvidence, history: History, goal: Floats, missing: Floats) -> None:
        """Which entries give an identifier that a likely entry lacks; one that lacks the same kind itself gives nothing."""
        c = self._c
        if not len(c.needs.entry) or not len(c.gives.entry):
            return
        wanted = goal[c.needs.entry] * (missing > 0)
        by_kind = np.zeros(len(c.kinds))
        np.maximum.at(by_kind, c.needs.what, wanted)
        by_pair = np.zeros(c.pairs)
        np.maximum.at(by_pair, c.need_pair, wanted)
        free = np.where(c.give_own_need >= 0, missing[c.give_own_need] == 0, True)
        open_ = ~(history.finished | history.pending)[c.gives.entry]
        weight = c.gives.weight * free * open_
        anywhere = c.gives.maximum(weight * by_kind[c.gives.what], c.size)
        same_provider = c.gives.maximum(weight * np.where(c.give_pair >= 0, by_pair[c.give_pair], 0.0), c.size)
        table[:, INDEX["gives_missing"]] = anywhere
        table[:, INDEX["gives_missing_here"]] = same_provider
        table[:, INDEX["gives_missing_log"]] = np.log((anywhere + _MIN_SUPPLY) / _MIN_SUPPLY)
        table[:, INDEX["gives_missing_fitting"]] = anywhere * query.whole[:, 3]

    def _takes(
        self, table: Floats, state: ExecutionState, history: History, have: Floats, ready: Bools, odds: Floats
    ) -> None:
        """Which entries take what was observed, what was observed last, and what no entry has taken yet."""
        c = self._c
        root = np.sqrt(odds)
        given = np.zeros(len(c.kinds), np.bool_)
        used = np.zeros(len(c.kinds), np.bool_)
        given[c.gives.what[history.finished[c.gives.entry]]] = True
        ran = history.finished | history.pending
        used[c.needs.what[ran[c.needs.entry]]] = True
        unused = given & ~used
        table[:, INDEX["takes_observed"]] = ready & (c.needs.maximum((have[c.needs.what] > 0), c.size) > 0)
        share = c.needs.total(unused[c.needs.what], c.size)
        table[:, INDEX["takes_unused"]] = ready & (share > 0)
        table[:, INDEX["takes_unused_relevant"]] = table[:, INDEX["takes_unused"]] * root
        table[:, INDEX["unused_share"]] = ready * share / max(int(unused.sum()), 1)
        known = np.zeros(len(c.field_index) or 1, np.bool_)
        known[[c.field_index[name] for name in state.observation_field_names if name in c.field_index]] = True
        fields = c.required_fields
        table[:, INDEX["fields_observed"]] = fields.total(known[fields.what], c.size) / c.required_count
        visited = np.zeros(len(c.providers), np.bool_)
        visited[c.provider[history.executed]] = True
        table[:, INDEX["same_provider"]] = visited[c.provider]
        latest = history.latest
        if latest is None:
            return
        table[:, INDEX["latest_provider"]] = c.provider == c.provider[latest]
        if history.finished[latest]:
            self._takes_latest(table, latest, ready, root)

    def _takes_latest(self, table: Floats, latest: int, ready: Bools, root: Floats) -> None:
        c = self._c
        kinds = np.zeros(len(c.kinds), np.bool_)
        kinds[c.gives.what[c.gives.entry == latest]] = True
        table[:, INDEX["takes_latest"]] = ready & (c.needs.maximum(kinds[c.needs.what], c.size) > 0)
        quantities = np.zeros(len(c.quantities) or 1, np.bool_)
        quantities[c.gives_quantity.what[c.gives_quantity.entry == latest]] = True
        takes = c.takes_quantity.maximum(quantities[c.takes_quantity.what], c.size)
        table[:, INDEX["quantity_of_latest"]] = takes
        table[:, INDEX["quantity_of_latest_relevant"]] = takes * root
        meanings = np.zeros(c.meanings or 1, np.bool_)
        meanings[c.meanings_given.get(latest, [])] = True
        taken = c.takes_meaning.total(meanings[c.takes_meaning.what], c.size)
        table[:, INDEX["meaning_of_latest"]] = taken / c.meanings_taken

    def _conversion(self, table: Floats, state: ExecutionState, history: History, goal: Floats) -> None:
        """Which entries convert an observed unit into one that a likely entry takes."""
        c = self._c
        dimensions, units = frozenset(state.observation_dimensions), frozenset(state.observation_units)
        if not dimensions:
            return
        unmet = np.asarray([d in dimensions and bool(u) and u not in units for d, u in c.quantities], np.bool_)
        takes, gives = c.takes_quantity, c.gives_quantity
        asks = unmet[takes.what] & ~c.converter[takes.entry] & ~history.finished[takes.entry]
        table[takes.entry[asks], INDEX["unit_unmet"]] = 1.0
        wanted = np.zeros(len(c.quantities) or 1)
        np.maximum.at(wanted, takes.what[asks], goal[takes.entry[asks]])
        able = np.zeros(c.size, np.bool_)
        able[[index for index, sources in c.source_units.items() if sources & units]] = True
        helps = able[gives.entry] & ~history.finished[gives.entry]
        converts = gives.maximum(np.where(helps, np.sqrt(wanted[gives.what]), 0.0), c.size)
        table[:, INDEX["converts"]] = converts
        latest = history.latest
        if latest is not None:
            given = gives.what[gives.entry == latest]
            recent = {c.quantities[q][0] for q in given}
            fresh = np.asarray([d in recent for d, _ in c.quantities], np.bool_)
            table[:, INDEX["converts_latest"]] = gives.maximum(
                np.where(helps & fresh[gives.what], np.sqrt(wanted[gives.what]), 0.0), c.size
            )

    def _history(self, table: Floats, state: ExecutionState, history: History, odds: Floats, ready: Bools) -> None:
        """Which entries have run, and what a failure calls for."""
        table[:, INDEX["finished"]] = history.finished
        table[:, INDEX["finished_relevant"]] = history.finished * odds
        if state.last_execution_status not in _FAILED:
            table[:, INDEX["resumed"]] = history.pending
            return
        if state.last_error_class is None:
            return
        if is_transient(state.last_error_class):
            table[:, INDEX["retry"]] = history.pending
            return
        table[:, INDEX["failed"]] = history.pending
        self._corrective_actions(table, state.last_error_class, history, ready)

    def _corrective_actions(self, table: Floats, error_class: str, history: History, ready: Bools) -> None:
        c = self._c
        free = ~(history.finished | history.pending)
        failed = history.executed[history.pending[history.executed]][-1]
        same_provider = c.provider == c.provider[failed]
        error = self._relevance.error_words(error_stems(error_class)) * free
        corrective = self._relevance.error_words(corrective_stems(error_class)) * free
        table[:, INDEX["error_words"]] = error
        table[:, INDEX["cure_words"]] = np.sqrt(error * corrective)
        table[:, INDEX["error_words_here"]] = error * same_provider
        table[:, INDEX["cure_words_here"]] = corrective * same_provider
        kinds = np.zeros(len(c.kinds), np.bool_)
        kinds[c.needs.what[c.needs.entry == failed]] = True
        shares = c.needs.maximum(kinds[c.needs.what], c.size) > 0
        table[:, INDEX["shares_identifier"]] = shares & free & ready
