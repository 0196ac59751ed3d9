"""Conformance tests of a memory with several users; see README.md in this folder."""

from concurrent.futures import ThreadPoolExecutor

import pytest

RELATED = [
    ("u1", "u10"),
    ("acme", "acme-corp"),
    ("ann", "Ann"),
    ("a%", "a_"),
    ('q"', "q"),
    ("x,y", "x"),
]
"""Ids that a careless prefix, pattern or folding would confuse."""


def secret(user: str) -> str:
    word = user.encode().hex()
    return f"My locker code is code{word}z."


QUESTION = "What is my locker code?"


class TenancyConformance:
    """Subclass it, and fill in the fixture ``place``."""

    @pytest.fixture
    def place(self):
        raise NotImplementedError("fill in an empty place")

    @pytest.mark.parametrize(("one", "other"), RELATED)
    def test_users_with_related_ids_never_see_each_other(self, place, one, other):
        place.remember(one, secret(one))
        before = place.recall(other, QUESTION)
        place.remember(other, secret(other))
        recalled = place.recall(one, QUESTION)
        recalled_by_other = place.recall(other, QUESTION)
        assert secret(one) not in before
        assert secret(one) in recalled
        assert secret(other) not in recalled
        assert secret(other) in recalled_by_other
        assert secret(one) not in recalled_by_other

    def test_users_at_once_never_see_each_other(self, place):
        users = [f"u{'1' * n}" for n in range(1, 6)]

        def live(user: str) -> None:
            own = secret(user)
            place.remember(user, own)
            for _ in range(2):
                recalled = place.recall(user, QUESTION)
                seen = [each for each in users if secret(each) in recalled]
                assert seen == [user]

        with ThreadPoolExecutor(len(users)) as threads:
            done = threads.map(live, users)
            assert len(list(done)) == len(users)

    @pytest.mark.parametrize(("one", "other"), RELATED[:2])
    def test_forgetting_one_user_leaves_the_other(self, place, one, other):
        for user in (one, other):
            place.remember(user, secret(user))
        place.forget_user(one)
        recalled = place.recall(one, QUESTION)
        recalled_by_other = place.recall(other, QUESTION)
        assert secret(one) not in recalled
        assert secret(other) in recalled_by_other

    def test_a_forgotten_user_is_gone_everywhere(self, place):
        first = secret("u1")
        second = secret("u2")
        place.remember("u1", first)
        place.remember("u1", "The ferry was late.")
        place.remember("u2", second)
        place.forget_text("u1", first)
        recalled = place.recall("u1", QUESTION)
        recalled_by_other = place.recall("u2", QUESTION)
        assert first not in recalled
        assert second in recalled_by_other
        forgotten = first.encode()
        for file in place.files():
            content = file.read_bytes()
            assert forgotten not in content, file
