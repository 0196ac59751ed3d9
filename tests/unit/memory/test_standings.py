import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import FreeEnergies
from ecs_plugins.memory.standings import Standings
from ecs_plugins.memory.types import FreeEnergy
from tests.unit.memory.factories import axis, cold

CONFIG = MemoryConfig()
entries = st.lists(
    st.tuples(st.integers(-5, 5), st.integers(-5, 5), st.booleans(), st.integers(1, 3)),
    min_size=1,
    max_size=12,
)


def side_by_side(terms):
    columns = ([getattr(each, name) for each in terms] for name in FreeEnergy.__slots__)
    return FreeEnergies(*(np.array(column, dtype=np.float64) for column in columns))


def standings(rows, added=(), removed=(), config=CONFIG):
    """The arrays, and the same memories as a plain list of (position, memory, terms)."""
    values = [
        (cold(f"c{i}", axis(i % 8), pinned=pinned, support=support), FreeEnergy(e, 0.0, total))
        for i, (e, total, pinned, support) in enumerate([*rows, *added])
    ]
    first = values[: len(rows)]
    arrays = Standings(
        [memory for memory, _ in first],
        np.stack([memory.vector for memory, _ in first]),
        side_by_side([terms for _, terms in first]),
        config,
        len(added),
    )
    for memory, terms in values[len(rows) :]:
        arrays.add(memory, terms)
    gone = {position % len(values) for position in removed}
    for position in gone:
        arrays.remove(position)
    plain = [(i, m, t) for i, (m, t) in enumerate(values) if i not in gone]
    return arrays, plain


def first_of_highest(rows, key):
    best = max((key(terms) for _, _, terms in rows), default=None)
    return next((i for i, _, terms in rows if key(terms) == best), None)


@given(entries, entries, st.sets(st.integers(0, 30)), st.sampled_from(["free_energy", "utility"]))
def test_the_arrays_agree_with_a_plain_search(rows, added, removed, victim):
    config = CONFIG.replace(victim=victim)
    arrays, plain = standings(rows, added, removed, config)

    def weakness(terms):
        return terms.energy if victim == "utility" else terms.total

    free = [row for row in plain if not row[1].pinned]
    fillers = [row for row in free if row[1].evidence.support < 2]
    old = [row for row in fillers if row[0] < len(rows)]
    assert arrays.weakest() == first_of_highest(fillers or free, weakness)
    assert arrays.weakest_old_filler() == first_of_highest(old, weakness)
    assert [memory.id for memory in arrays] == [memory.id for _, memory, _ in plain]
    assert len(arrays) == len(plain)
    cosines = {at: float(memory.vector @ axis(0, 1, 0.8)) for at, memory, _ in plain}
    near = list(arrays.near(axis(0, 1, 0.8), 0.5))
    assert sorted(at for at, _ in near) == [at for at, cosine in cosines.items() if cosine >= 0.5]
    assert [cosine for _, cosine in near] == sorted((c for _, c in near), reverse=True)
    assert all(cosine == pytest.approx(cosines[at]) for at, cosine in near)


def test_what_became_of_the_memories_is_told():
    arrays, plain = standings([(0, i, False, 2) for i in range(4)], [(0, 9, False, 2)] * 2, {1, 5})
    memories = {position: memory for position, memory, _ in plain}
    new = [cold(f"new{i}", axis(7), support=2) for i in range(3)]
    for position, memory in zip((0, 3, 4), new, strict=True):
        arrays.change(position, memory, arrays.terms(position))
    arrays.remove(3)
    assert arrays.changed() == (new[0],)
    assert arrays.added() == (new[2],)
    assert [memory.id for memory in arrays.removed()] == ["c1", "c3"]
    assert [memory.id for memory in arrays] == ["new0", memories[2].id, "new2"]
    assert arrays.changed_near(axis(7), 0.9) == [0, 3, 4]
    assert [arrays.is_there(position) for position in range(6)] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]


def test_a_changed_memory_has_its_new_standing():
    arrays, _ = standings([(0, 5, False, 2), (0, 1, False, 2)])
    assert arrays.weakest() == 0
    arrays.change(0, cold("c0", axis(7), support=2), FreeEnergy(0.0, 0.0, -9.0))
    assert arrays.weakest() == 1
    assert list(arrays.near(axis(7), 0.9)) == [(0, pytest.approx(1.0))]
