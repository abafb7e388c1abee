"""The number of refreshes an episode has left."""

from __future__ import annotations

from dataclasses import dataclass

from schemarouter.errors import SchemaRouterError


class BudgetError(SchemaRouterError):
    """A refresh was spent that the budget does not hold."""


@dataclass(frozen=True, slots=True)
class RefreshBudget:
    """Refreshes left in an episode; spending gives a smaller budget, never one below zero."""

    left: int

    def __post_init__(self) -> None:
        if isinstance(self.left, bool) or not isinstance(self.left, int) or self.left < 0:
            raise BudgetError(f"a refresh budget is a whole number from 0, got {self.left!r}.")

    def spend(self) -> RefreshBudget:
        """The budget after one refresh. Raises BudgetError when none is left."""
        if self.left == 0:
            raise BudgetError("no refresh is left in this episode.")
        return RefreshBudget(self.left - 1)
