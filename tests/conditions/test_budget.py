"""The refresh budget is a whole number that shrinks and never passes zero."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.budget import BudgetError, RefreshBudget
from tests.strategies import LAWS


@LAWS
@given(st.integers(0, 30), st.integers(0, 40))
def test_spending_gives_one_less_until_none_is_left_and_then_refuses(start: int, spent: int) -> None:
    budget = RefreshBudget(start)
    for done in range(min(start, spent)):
        assert budget.left == start - done
        budget = budget.spend()
    assert budget.left == max(0, start - spent)
    if spent > start:
        with pytest.raises(BudgetError, match="no refresh is left"):
            budget.spend()
        assert budget.left == 0


@pytest.mark.parametrize("left", [-1, -5, True, False, 1.0, "3", None])
def test_a_budget_is_a_whole_number_from_zero(left: Any) -> None:
    with pytest.raises(BudgetError, match="whole number from 0"):
        RefreshBudget(left)


def test_spending_leaves_the_budget_itself_alone() -> None:
    budget = RefreshBudget(2)
    assert budget.spend() == RefreshBudget(1) and budget == RefreshBudget(2)
    with pytest.raises(FrozenInstanceError):
        budget.left = 5  # type: ignore[misc]
