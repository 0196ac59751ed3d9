from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tiny_models import local, request

from ecs_plugins.lm.scoring.prefix import PrefixCache, PrefixState

LAYERS, HEADS, WIDTH = 2, 2, 4
BYTES_PER_TOKEN = 2 * LAYERS * HEADS * WIDTH * 4


def state(*ids):
    """A state whose keys and values say which token they belong to."""
    values = torch.tensor(ids, dtype=torch.float32).view(1, 1, -1, 1)
    layer = (
        values.expand(1, HEADS, len(ids), WIDTH).clone(),
        -values.expand(1, HEADS, len(ids), WIDTH).clone(),
    )
    return PrefixState(tuple(ids), (layer,) * LAYERS)


def held(cache, *ids):
    return cache.find(ids).ids


def test_a_head_is_a_view_of_its_tokens() -> None:
    whole = state(1, 2, 3, 4)
    head = whole.head(2)
    assert head.ids == (1, 2)
    assert head.layers[0][0].data_ptr() == whole.layers[0][0].data_ptr()
    assert head.layers[1][1][0, 0, :, 0].tolist() == [-1, -2]
    assert whole.head(9) is whole
    assert whole.head(0) == PrefixState()


def test_appending_changes_neither_side() -> None:
    front, back = state(1, 2), state(3)
    longer = front.append((3,), back.layers)
    assert longer.ids == (1, 2, 3)
    assert longer.layers[0][0][0, 0, :, 0].tolist() == [1, 2, 3]
    assert (front.ids, back.ids) == ((1, 2), (3,))
    assert PrefixState().append((3,), back.layers).layers[0][0].is_contiguous()


def test_the_longest_kept_head_is_found() -> None:
    cache = PrefixCache()
    cache.keep(state(1, 2))
    cache.keep(state(1, 5, 6, 7))
    assert held(cache, 1, 2, 3) == (1, 2)
    assert held(cache, 1, 5, 6, 9) == (1, 5, 6)
    assert held(cache, 8) == ()
    assert held(cache, 1, 5, 6, 7, 8) == (1, 5, 6, 7)


def test_an_extension_replaces_what_it_extends() -> None:
    cache = PrefixCache()
    cache.keep(state(1, 2))
    cache.keep(state(1, 2, 3))
    assert len(cache) == 1
    assert cache.nbytes == 3 * BYTES_PER_TOKEN


def test_the_least_recently_used_is_dropped_when_bytes_run_out() -> None:
    cache = PrefixCache(4 * BYTES_PER_TOKEN)
    cache.keep(state(1, 2))
    cache.keep(state(3, 4))
    cache.find((1, 2))
    cache.keep(state(5, 6))
    assert held(cache, 3, 4) == ()
    assert held(cache, 1, 2) == (1, 2)
    assert held(cache, 5, 6) == (5, 6)
    assert cache.nbytes <= cache.max_bytes


def test_what_is_larger_than_the_budget_is_not_kept_and_drops_nothing() -> None:
    cache = PrefixCache(2 * BYTES_PER_TOKEN)
    cache.keep(state(1, 2))
    cache.keep(state(1, 2, 3))
    assert held(cache, 1, 2) == (1, 2)


def test_a_smaller_budget_takes_effect_at_once() -> None:
    cache = PrefixCache()
    cache.keep(state(1, 2))
    cache.keep(state(3))
    cache.resize(BYTES_PER_TOKEN)
    assert (held(cache, 1, 2), held(cache, 3)) == ((), (3,))


def test_threads_never_see_a_foreign_state_nor_exceed_the_budget() -> None:
    cache = PrefixCache(20 * BYTES_PER_TOKEN)

    def work(thread):
        for n in range(200):
            ids = (thread, n % 7, n % 3)
            found = cache.find(ids)
            assert found.ids == ids[: len(found.ids)]
            if found.ids:
                assert found.layers[0][0][0, 0, :, 0].tolist() == list(found.ids)
            cache.keep(state(*ids))
            assert cache.nbytes <= cache.max_bytes

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


# --- Behind a handle ---


@pytest.fixture
def engine_cache():
    """The cache of a fresh runtime, and the handle on it."""
    made = local()
    return made, made._load().engine.cache


def test_a_second_call_finds_the_prefix(engine_cache) -> None:
    handle, cache = engine_cache
    (first,) = handle.score([request()])
    (second,) = handle.score([request()])
    assert second.computed_tokens < first.computed_tokens
    assert cache.nbytes > 0


def test_clearing_the_cache_forgets_prefixes_and_counts(engine_cache) -> None:
    handle, cache = engine_cache
    (first,) = handle.score([request()])
    handle.clear_cache()
    assert len(cache) == 0
    assert handle.score([request()])[0].computed_tokens == first.computed_tokens


def test_the_self_check_leaves_no_trace_in_the_cache(engine_cache) -> None:
    handle, cache = engine_cache
    handle.warmup()
    assert len(cache) == 0


def test_no_bytes_keep_no_prefix() -> None:
    handle = local(cache_bytes=0)
    first, second = (handle.score([request()])[0] for _ in range(2))
    assert first.computed_tokens == second.computed_tokens
    assert len(handle._load().engine.cache) == 0
    assert first.scores[1][0][0].sum == pytest.approx(second.scores[1][0][0].sum, abs=1e-5)
