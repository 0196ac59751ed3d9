import pytest

from benchmarks.evidence.reading import checked_budgets, kept_units
from ecs_plugins.errors import InvalidInputError

ORDER, TOKENS = (4, 0, 2), (10, 99, 30, 99, 25)


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        ("none", ()),
        ("all", (0, 2, 4)),
        ("top2", (0, 4)),
        ("top9", (0, 2, 4)),
        ("35", (0, 4)),
        ("40", (0, 4)),
        ("24", (0,)),
        ("5", ()),
    ],
)
def test_a_budget_keeps_the_best_that_fit_in_their_original_order(budget, kept):
    assert kept_units(ORDER, TOKENS, budget) == kept


@pytest.mark.parametrize("budget", ["0", "-3", "top0", "top", "some", "1.5", ""])
def test_a_budget_that_means_nothing_is_refused(budget):
    with pytest.raises(InvalidInputError, match="a budget is"):
        checked_budgets([budget])
