import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from ecs_plugins.tokens import Role, Stage, TokenLedger


def test_totals_select_by_stage_and_role() -> None:
    ledger = TokenLedger()
    ledger.book(Stage.PREPARE, Role.COMPRESS_INPUT, 100)
    ledger.book(Stage.QUERY, Role.SCORER, 7)
    ledger.book(Stage.QUERY, Role.ANSWER_INPUT, 30)
    everything = ledger.total()
    per_query = ledger.total(Stage.QUERY)
    scorer = ledger.total(role=Role.SCORER)
    scorer_before = ledger.total(Stage.PREPARE, Role.SCORER)
    assert everything == 137
    assert per_query == 37
    assert scorer == 7
    assert scorer_before == 0


def test_concurrent_booking_loses_nothing() -> None:
    ledger = TokenLedger()

    def book_one(_: int) -> None:
        ledger.book(Stage.QUERY, Role.SCORER, 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(book_one, range(2000)))
    assert ledger.total() == 2000


def test_dict_and_pickle_round_trips() -> None:
    ledger = TokenLedger({(Stage.QUERY, Role.SCORER): 5})
    record = ledger.to_dict()
    pickled = pickle.dumps(ledger)
    assert TokenLedger.from_dict(record) == ledger
    assert pickle.loads(pickled) == ledger


def test_negative_tokens_are_refused() -> None:
    ledger = TokenLedger()
    with pytest.raises(ValueError, match="negative"):
        ledger.book(Stage.QUERY, Role.SCORER, -1)
