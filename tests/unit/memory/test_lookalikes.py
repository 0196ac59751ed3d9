"""No fact vanishes because of a statement that only looks as if it corrected it."""

import pytest

from tests.unit.memory.lookalikes import KINDS, pairs


@pytest.mark.parametrize("kind", KINDS)
def test_a_lookalike_of_a_correction_takes_nothing_away(open_memory, kind):
    memory = open_memory()
    for number, (older, newer) in enumerate(pairs(kind, 2)):
        namespace = (str(number),)
        name, _ = memory.add([older, newer], namespace=namespace)
        reached = memory.recall(
            older, namespace=namespace, k=50, threshold=-1.0, include_superseded=True
        )
        assert older in [each.text for each in reached]
        assert memory.get(name).superseded_by is None
