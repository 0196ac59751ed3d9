"""Namespaces: tuples of labels, matched element by element, and their one encoding as a key.

A namespace is stored as the JSON array of its labels. JSON strings delimit themselves, so two
namespaces share a key only if they are equal, and the key of ``("a", "b")`` without its closing
bracket, followed by a comma, begins exactly the keys of what lies below it. No separator that a
label could contain takes part in a comparison, so ``("t", "acme")`` never matches
``("t", "acme-corp")`` and no label is a pattern.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from ecs_plugins.errors import InvalidInputError

Namespace = tuple[str, ...]

DEFAULT_NAMESPACE: Namespace = ("default",)

MAX_LABELS = 32
MAX_LABEL_LENGTH = 512


def checked(namespace: Sequence[str]) -> Namespace:
    """Return ``namespace`` as a tuple, or refuse it.

    Raises:
        InvalidInputError: It is a bare string, empty, too deep, or holds a label that is empty,
            too long, no string, or no valid Unicode.
    """
    if isinstance(namespace, str):
        raise InvalidInputError(
            f"a namespace is a tuple of labels, got the string {namespace!r}; "
            f"write ({namespace!r},)"
        )
    labels = tuple(namespace)
    if not 1 <= len(labels) <= MAX_LABELS:
        raise InvalidInputError(f"a namespace has 1 to {MAX_LABELS} labels, got {len(labels)}")
    for label in labels:
        if not isinstance(label, str):
            raise InvalidInputError(f"a namespace label is a string, got {label!r}")
        if not 1 <= len(label) <= MAX_LABEL_LENGTH:
            raise InvalidInputError(
                f"a namespace label has 1 to {MAX_LABEL_LENGTH} characters, got {len(label)}"
            )
        try:
            label.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(f"the label {label!a} is not valid Unicode") from None
    return labels


def encode(namespace: Sequence[str]) -> str:
    """The key of a namespace: the JSON array of its labels."""
    return key_of(checked(namespace))


@lru_cache(maxsize=4096)
def key_of(namespace: Namespace) -> str:
    """The key of a namespace that is known to be one."""
    return json.dumps(namespace, ensure_ascii=False, separators=(",", ":"))


def decode(key: str) -> Namespace:
    """The namespace behind a key."""
    return tuple(json.loads(key))


def below(prefix: Sequence[str]) -> tuple[str, str]:
    """The half-open range of keys, in byte order, of all namespaces strictly below ``prefix``."""
    stem = encode(prefix)[:-1]
    return stem + ",", stem + "-"  # "-" follows "," in byte order
