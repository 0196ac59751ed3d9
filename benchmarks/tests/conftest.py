"""The fixtures of the package's tests."""

from tests.conftest import bundled_lm, embedder

__all__ = ["bundled_lm", "embedder"]
