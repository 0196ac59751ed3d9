"""Small memories for tests: unit vectors on named axes, evidence with the counts that matter."""

import numpy as np

from ecs_plugins.memory.types import ColdMemory, Evidence, HotItem

DIMENSION = 8


def axis(index, toward=None, cosine=1.0):
    """A basis vector, or one at ``cosine`` to it in the plane towards another axis."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[index] = cosine
    if toward is not None:
        vector[toward] = np.sqrt(1.0 - cosine**2)
    return vector


def evidence(step=0, support=1, demand=0.0, **changes):
    values = {
        "created": step,
        "updated": step,
        "last_seen": step,
        "support": support,
        "demand": demand,
        "resultant": float(support),
    }
    return Evidence(**(values | changes))


def text_of(name):
    """A text without a number, in which two names would differ."""
    return f"text of {name.translate(str.maketrans('0123456789', 'abcdefghij'))}"


def hot(name, vector, **changes):
    return HotItem(name, vector, evidence(**changes), (name,), text_of(name))


def cold(name, vector, *, pinned=False, entropy=0.0, **changes):
    return ColdMemory(
        name, vector, evidence(**changes), text_of(name), pinned=pinned, entropy=entropy
    )
