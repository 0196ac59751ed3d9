"""Cache of keys and values: scores stay right, and the budget holds."""

import copy
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import (
    FAMILIES,
    MASKED,
    PASSAGES,
    TOKENIZERS,
    engine,
    engine_of,
    ids,
    local,
    model,
    request,
)

from ecs_plugins import ContextShaper, EntropicMemory, ShapingConfig
from ecs_plugins.errors import ModelError, ModelTimeoutError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.scoring.arena import Arena, LayerShape, StateShape
from ecs_plugins.lm.scoring.forest import MIN_SAVED
from ecs_plugins.lm.scoring.packs import Affordable, TokenBudget, run_in_packs
from ecs_plugins.lm.scoring.prefix import PrefixState, PrefixTree, places_of
from ecs_plugins.lm.scoring.profile import ScoringPath
from ecs_plugins.lm.scoring.request import Continuation, TokenRequest
from ecs_plugins.memory.types import DEFAULT_NAMESPACE
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.shaping.signals import SIGNALS

pytestmark = pytest.mark.model

LAYERS, HEADS, WIDTH = 2, 2, 4
BYTES_PER_TOKEN = 2 * LAYERS * HEADS * WIDTH * 4
LIKE = pytest.approx
FIRST, OTHER = ids(1, 30), ids(5, 24)


POOL = (
    (),
    FIRST,
    FIRST[:20] + ids(4, 9),
    OTHER,
    FIRST + ids(8, 12),
)


def asked(prefix, seed, candidates=POOL):
    """Some passages and a question: two answers behind nine tokens of template."""
    question = ids(2, 9) + ids(seed, 11)
    continuations = []
    for answer in (ids(seed + 1, 6), ids(seed + 2, 3)):
        scored_span = (9, 20 + len(answer))
        continuations.append(Continuation(question + answer, (scored_span,), 8))
    return TokenRequest(prefix, candidates, tuple(continuations))


def error(under_test, one, found):
    everything = range(len(one.candidates))
    wanted, _ = under_test.run(ScoringPath.REFERENCE, one, everything)
    assert wanted.keys() == found.scores.keys()
    errors = [np.abs(wanted[key] - found.scores[key]).max() for key in wanted]
    return float(max(errors))


def scored(under_test, one, **options):
    """The tokens of a call that was as exact as every other."""
    (found,) = under_test.score([one], **options)
    assert error(under_test, one, found) < 1e-4
    return found.computed_tokens


# --- Scores ------------------------------------------------------------------------------------

SHARES = ("cascade", MASKED)
KEEPING = [name for name, family in FAMILIES.items() if family.path in SHARES]


@pytest.mark.parametrize("max_bytes", [0, 40 * 16 * BYTES_PER_TOKEN, None])
@pytest.mark.parametrize("family", KEEPING)
def test_a_call_that_gives_way_between_packs_and_the_others_are_exact(family, max_bytes) -> None:
    under_test = engine_of(model(family))
    under_test.cache.max_bytes = max_bytes
    prefix = ids(3, 40)
    others = [
        asked(prefix, seed, tuple(ids(20 + seed + n, 30) for n in range(3)) + POOL)
        for seed in range(6)
    ]
    large = asked(prefix, 9, POOL + tuple(ids(20 + n, 30) for n in range(12)))
    under_test.score([others[0]])
    within = []

    def give_way():
        if len(within) < len(others):
            one = others[len(within)]
            within.append(under_test.score([one])[0])

    (found,) = under_test.score([large], token_budget=64, give_way=give_way)
    assert len(within) == len(others)
    for one, result in zip([large, *others], [found, *within], strict=True):
        assert error(under_test, one, result) < 1e-4


@pytest.mark.parametrize("prefix", [0, 50])
@pytest.mark.parametrize("name", KEEPING)
def test_later_questions_are_exact_and_read_no_passage_again(name, prefix) -> None:
    under_test = engine(name)
    head = ids(3, prefix) or (5,)
    first = scored(under_test, asked(head, 20))
    assert scored(under_test, asked(head, 30)) < 0.8 * first
    grown = head + ids(40, 35)
    first = scored(under_test, asked(grown, 20))
    larger_pool = (ids(9, 33), *POOL)
    assert scored(under_test, asked(grown, 30, larger_pool)) < first + 33


CALLS = st.tuples(
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 60),
)


@settings(max_examples=6, deadline=None)
@given(st.lists(CALLS, min_size=2, max_size=6))
def test_any_order_of_contexts_and_passages_is_exact(calls) -> None:
    under_test = engine()
    under_test.cache.max_bytes = 60_000
    for context, passage, shared in calls:
        alike = ids(passage, 70)[:shared] + ids(passage + 9, 18)
        passages = ((), alike, ids(passage, 40))
        prefix = ids(90 + context // 2, 40 * context + 1)
        scored(under_test, asked(prefix, passage, passages))
        assert under_test.cache.statistics.nbytes <= 60_000


@pytest.mark.parametrize("tokens", TOKENIZERS)
def test_a_prepared_passage_is_found_behind_every_tokenizer(tokens) -> None:
    lm = local(tokens=tokens)
    cold = local(tokens=tokens)
    later = request(answers=(" snow",))
    read = lm.prepare([request()])
    assert 0.8 * read < lm.cache_statistics.tokens <= read
    assert lm.prepare([request()]) == 0
    (found,) = lm.score([later])
    (wanted,) = cold.score([later])
    assert found.computed_tokens < wanted.computed_tokens - 0.8 * read
    score = found.scores[2][0][1].sum
    assert score == LIKE(wanted.scores[2][0][1].sum, abs=1e-4)


PREPARED = {*SIGNALS, "joint_shift+bm25"} - {"drafted_joint_shift"}


@pytest.mark.parametrize("signal", sorted(PREPARED))
def test_a_shaper_prepares_the_prefixes_of_its_signal(signal) -> None:
    lm = local()
    passages = [
        *PASSAGES[:3],
        "What does Bob sell at the market?",
        "Bread, he said.",
    ]
    shaper = ContextShaper(lm, ShapingConfig(signal=signal, top_k=2))
    read = shaper.prepare(passages)
    assert read > 0
    assert shaper.prepare(passages) == 0
    shaped = shaper.shape("Where is Ann?", passages, answer="Paris")
    assert lm.cache_statistics.tokens_saved > 0
    plain = ContextShaper(local(), ShapingConfig(signal=signal, top_k=2))
    wanted = plain.shape("Where is Ann?", passages, answer="Paris")
    pairs = zip(shaped.verdicts, wanted.verdicts, strict=True)
    for found, alone in pairs:
        assert found.utility == LIKE(alone.utility, abs=1e-3)
    assert ContextShaper(FakeLanguageModel()).prepare(passages) == 0


@pytest.mark.parametrize("cache_bytes", [0, 20_000, 1 << 20])
def test_a_budget_changes_no_score_and_is_not_exceeded(cache_bytes) -> None:
    under_test = engine()
    under_test.cache.max_bytes = cache_bytes
    question = asked(ids(3, 40), 20)
    first = scored(under_test, question)
    again = scored(under_test, question)
    assert under_test.cache.statistics.nbytes <= cache_bytes
    assert (first == again) == (cache_bytes == 0)


def test_a_pool_beyond_the_budget_is_found_in_part_again_and_again() -> None:
    under_test = engine()
    passages = tuple(ids(100 + n, 40) for n in range(8))
    pool = asked((5,), 20, passages)
    under_test.cache.max_bytes = 5 * 49 * 256
    spent = [scored(under_test, pool) for _ in range(3)]
    assert spent[0] > spent[1] == spent[2]


@pytest.mark.parametrize("changed", ["in place", "replaced", "loaded"])
def test_changed_weights_are_noticed(changed) -> None:
    own = copy.deepcopy(model("llama"))
    under_test = engine_of(own)
    one = asked(ids(3, 40), 20)
    first = scored(under_test, one)
    weight = own.model.layers[1].mlp.down_proj.weight
    with torch.no_grad():
        if changed == "in place":
            weight.mul_(1.5)
        elif changed == "replaced":
            own.model.layers[1].mlp.down_proj.weight = torch.nn.Parameter(weight * 1.5)
        else:
            own.load_state_dict({name: w * 1.5 for name, w in own.state_dict().items()})
    assert scored(under_test, one) == first


def test_a_call_that_is_stopped_leaves_nothing_wrong() -> None:
    under_test, one = engine(), asked(ids(3, 40), 20)
    under_test.warm_up()
    for patience in (0, 1, 3):
        left = iter([False] * patience)
        stopped = partial(next, left, True)
        try:
            under_test.score([one], token_budget=30, stopped=stopped)
        except ModelTimeoutError:
            another = asked(ids(3, 40), 50 + patience)
            assert scored(under_test, another) > 0


def test_text_forgotten_during_a_call_is_not_cached() -> None:
    under_test, one = engine(), asked(ids(3, 40), 20)
    under_test.warm_up()
    calls = []

    def forgetting():
        calls.append(under_test.forget())
        return False

    scored(under_test, one, token_budget=30, stopped=forgetting)
    assert calls
    assert under_test.cache.statistics.tokens == 0


def test_callers_at_once_get_their_own_scores_while_others_forget() -> None:
    lm = local(cache_bytes=30_000)

    def score_of(handle, day):
        (result,) = handle.score([request(f"Day {day}. " * 6)])
        return result.scores[2][1][1].sum

    wanted = [score_of(local(), day) for day in range(4)]

    def work(n):
        if n % 5 == 0:
            lm.clear_cache()
        return score_of(lm, n % 4)

    with ThreadPoolExecutor(4) as pool:
        for n, found in enumerate(pool.map(work, range(24))):
            assert found == LIKE(wanted[n % 4], abs=1e-4)
    assert lm.cache_statistics.nbytes <= 30_000


@pytest.mark.parametrize(
    "erase",
    [
        lambda memory, message: memory.delete(message),
        lambda memory, message: memory.update(message, text="It rains."),
        lambda memory, _: memory.forget(DEFAULT_NAMESPACE),
        lambda memory, _: memory.sleep(),  # what has a time to live has expired
    ],
)
def test_erasing_in_a_memory_clears_the_models_cache(erase) -> None:
    lm = local()
    with EntropicMemory.open(embedder=FakeEmbedder(), model=lm) as memory:
        (message,) = memory.add("Ann moved to Paris in the spring.", at=0.0, ttl=1e9)
        lm.score([request()])
        assert lm.cache_statistics.tokens > 0
        erase(memory, message)
    assert lm.cache_statistics.tokens == 0


def test_a_model_is_not_loaded_to_be_cleared(tmp_path) -> None:
    (tmp_path / "config.json").write_text("not a model")
    lm = LocalLM.from_pretrained(tmp_path)
    lm.clear_cache()
    with pytest.raises(ModelError):
        lm.warmup()


def test_a_forked_child_uses_its_parents_cache() -> None:
    lm = local()
    lm.score([request()])
    again = lm.score([request()])[0].computed_tokens
    child = os.fork()
    if not child:
        (found,) = lm.score([request()])
        os._exit(found.computed_tokens != again)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# --- When memory runs out ----------------------------------------------------------------------


def test_the_cache_is_dropped_before_a_memory_error(monkeypatch) -> None:
    under_test = engine()
    under_test.cache.max_bytes = 2**20
    first = scored(under_test, asked(ids(3, 40), 20))
    assert scored(under_test, asked(ids(3, 40), 20)) < first
    logits = under_test.runner.logits

    def on_a_full_card(*arguments, **options):
        cache = under_test.cache
        if cache.is_open and cache.arena.nbytes > 2**19:
            raise torch.OutOfMemoryError("out of memory")
        return logits(*arguments, **options)

    monkeypatch.setattr(under_test.runner, "logits", on_a_full_card)
    assert scored(under_test, asked(ids(3, 40), 30)) == first
    assert scored(under_test, asked(ids(3, 40), 40)) < first
    assert under_test.cache.statistics.nbytes <= 2**19


def test_a_halved_budget_grows_again() -> None:
    affordable = Affordable()
    budget = TokenBudget(10_000, affordable=affordable)
    budget.halve(9_000)
    assert budget.tokens == 4_500
    for _ in range(8):
        TokenBudget(10_000, affordable=affordable).went_well(4_400)
    assert TokenBudget(10_000, affordable=affordable).tokens == 9_000


def test_a_pack_larger_than_any_that_went_well_is_halved_before_anything_is_dropped() -> None:
    budget = TokenBudget(10_000)
    released = []
    sizes = []

    def take(left, tokens):
        number = min(len(left), tokens // 1000)
        return number, number * 1000

    def run(part):
        sizes.append(len(part))
        if len(part) > 4:
            raise torch.OutOfMemoryError("out of memory")

    def release():
        released.append(1)
        return True

    run_in_packs(range(10), take, run, budget, "tiny", release)
    assert sizes == [10, 5, 2, 2, 2, 2, 2]
    assert not released


# --- The tree ----------------------------------------------------------------------------------

NOTHING = PrefixState()
LAYER = LayerShape(HEADS, WIDTH, WIDTH)
SHAPE = StateShape((LAYER,) * LAYERS, torch.float32, torch.device("cpu"))


def tree_of(tokens, page=1):
    """A tree with room for so many tokens."""
    tree = PrefixTree(tokens * BYTES_PER_TOKEN, page=page)
    tree.open(SHAPE)
    return tree


def kept_in(tree, tokens):
    """Keep a prefix whose keys and values say which token they belong to; whether there is room."""
    kept = tree.keep(tokens)
    if kept is None:
        return False
    slots = torch.tensor(places_of(kept.slots))
    rows = torch.arange(len(slots))
    written = tokens[kept.start :][: len(slots)]
    values = torch.tensor(written, dtype=torch.float32)
    states = values.view(1, 1, -1, 1).expand(1, HEADS, len(slots), WIDTH)
    for layer in range(LAYERS):
        tree.arena.write(layer, (states, -states), rows, slots)
    return True


def tokens_of(found):
    """The tokens that keys and values of a state say."""
    by_keys = []
    by_values = []
    for piece in found.pieces:
        keys, _ = piece.layers[1]
        _, values = piece.layers[0]
        by_keys.extend(keys[0, 1, :, 2].tolist())
        by_values.extend((-values[0, 0, :, 0]).tolist())
    assert by_keys == by_values
    return tuple(int(token) for token in by_keys)


SHORT_AND_LONG = (tuple(range(5)), tuple(range(100, 119)))
WORDS = st.lists(st.sampled_from(SHORT_AND_LONG), min_size=1, max_size=3).map(
    lambda words: sum(words, ())
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(WORDS, max_size=12),
    st.integers(1, 200),
    st.sampled_from([1, 3, 16]),
)
def test_found_prefixes_were_cached_within_the_budget(words, room, page) -> None:
    tree = tree_of(max(room, page), page)
    for tokens in words:
        tree.begin()
        found = tree.find(tokens)
        assert tokens_of(found) == found.ids == tokens[: found.length]
        if kept_in(tree, tokens):
            assert len(tokens) - tree.find(tokens).length < MIN_SAVED
        stats = tree.statistics
        assert stats.tokens * BYTES_PER_TOKEN <= stats.nbytes <= tree.max_bytes
        assert page > 1 or stats.tokens * BYTES_PER_TOKEN == stats.nbytes
    tree.max_bytes = 0
    tree.begin()
    assert tree.statistics.tokens == 0
    assert tree.find((100, 101, 102)).length == 0


@pytest.mark.parametrize("page", [1, 16])
def test_shared_prefixes_are_cached_once(page) -> None:
    tree = tree_of(400, page)
    for tokens in (40, 100, 20):  # the second keeps 60 of its own, the third cuts the first in two
        prefix = (*range(tokens), *range(500, 510))
        assert kept_in(tree, prefix)
    longest = (*range(100), *range(500, 510))
    found = tree.find(longest)
    assert tokens_of(found) == found.ids == longest
    assert tree.statistics.pieces == 5
    assert tree.statistics.tokens == 130


def test_the_least_recently_used_passage_goes_first_and_its_head_last() -> None:
    head = tuple(range(20))
    starts = (100, 200, 300)
    passages = [tuple(range(first, first + 10)) for first in starts]
    tree = tree_of(40)
    for passage in passages[:2]:
        kept_in(tree, head + passage)
    tree.begin()
    tree.find(head + passages[0])
    assert kept_in(tree, head + passages[2])
    lengths = [tree.find(head + passage).length for passage in passages]
    assert lengths == [30, 20, 30]
    assert not kept_in(tree, tuple(range(500, 541)))


def test_unwritten_nodes_are_released_with_their_children() -> None:
    tree = tree_of(200, page=16)
    first = tree.keep(tuple(range(50)))
    forked = (*range(30), *range(100, 140))
    second = tree.keep(forked)
    tree.give_up([first, second])
    assert tree.statistics[:3] == (0, 0, 0)
    assert kept_in(tree, tuple(range(190)))


def test_a_released_tree_takes_half_of_its_memory_again() -> None:
    tree = tree_of(200)
    kept_in(tree, tuple(range(50)))
    assert tree.release()
    assert not tree.release()
    assert not tree.is_open
    assert tree.find(tuple(range(50))).length == 0
    tree.open(SHAPE)
    assert tree.arena.pages == 100


STEPS = st.tuples(st.integers(1, 40), st.booleans())
"""Tokens to take, or whether some are given back."""


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_pages_are_handed_out_once_until_they_are_given_back(steps) -> None:
    arena = Arena(SHAPE, pages=12, page=4)
    taken = []
    for tokens, gives_back in steps:
        if gives_back and taken:
            for run in taken.pop(len(taken) // 2):
                arena.give_back(run)
        elif arena.pages_for(tokens) <= arena.free:
            taken.append(arena.take(tokens))
            assert sum(len(run) for run in taken[-1]) == tokens
        slots = [slot for runs in taken for slot in places_of(runs)]
        assert len(slots) == len(set(slots))
        lengths = [len(places_of(runs)) for runs in taken]
        pages = sum(arena.pages_for(length) for length in lengths)
        assert arena.free == arena.pages - pages
