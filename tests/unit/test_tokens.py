import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from ecs_plugins.tokens import Role, Stage, TokenLedger


def test_totals_select_by_stage_and_role() -> None:
    ledger = TokenLedger()
    ledger.book(Stage.PREPARE, Role.COMPRESS_INPUT, 100)
    ledger.book(Stage.QUERY, Role.SCORER, 7)
    ledger.book(Stage.QUERY, Role.ANSWER_INPUT, 30)
    assert ledger.total() == 137
    assert ledger.total(Stage.QUERY) == 37
    assert ledger.total(role=Role.SCORER) == 7
    assert ledger.total(Stage.PREPARE, Role.SCORER) == 0


def test_concurrent_booking_loses_nothing() -> None:
    ledger = TokenLedger()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ledger.book(Stage.QUERY, Role.SCORER, 1), range(2000)))
    assert ledger.total() == 2000


def test_dict_and_pickle_round_trips() -> None:
    ledger = TokenLedger({(Stage.QUERY, Role.SCORER): 5})
    assert TokenLedger.from_dict(ledger.to_dict()) == ledger
    assert pickle.loads(pickle.dumps(ledger)) == ledger


def test_negative_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        TokenLedger().book(Stage.QUERY, Role.SCORER, -1)
