"""Ranking by a cross-encoder of sentence-transformers, which reads question and passage together.

More exact than a cosine and more expensive: one pass through a model for each passage. For whoever
has one that is good at the language and the kind of document.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ecs_plugins.common.progress import without_progress_bars
from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import EcsPluginsError, ModelError
from ecs_plugins.ranking.base import Ranking
from ecs_plugins.ranking.weights import located, refuse_code

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

_ADVICE = "Give a directory, or allow_download=True to CrossEncoderRanker"


class CrossEncoderRanker:
    """The score that a cross-encoder gives question and passage.

    A model that is given by name is loaded on first use, from safetensors only, and no code of a
    repository is run. The ranker serves threads one after another, and pickles without weights
    that it loaded itself.

    Args:
        model: A name on the model hub, a directory, or a loaded ``CrossEncoder``.
        device: ``"auto"`` lets sentence-transformers choose, else ``"cpu"``, ``"cuda"``, ...
        allow_download: Whether the hub may be asked for a model that is not on this machine.
    """

    def __init__(
        self,
        model: str | Path | CrossEncoder,
        *,
        device: str = "auto",
        allow_download: bool = False,
    ) -> None:
        self._given = model
        self._device = device
        self._allow_download = allow_download
        self._loaded: CrossEncoder | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __deepcopy__(self, memo: dict[int, object]) -> CrossEncoderRanker:
        return self

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_loaded": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """``cross-encoder:`` and the model's name or directory."""
        if isinstance(self._given, str | Path):
            return f"cross-encoder:{self._given}"
        card = getattr(self._given, "model_card_data", None)
        return f"cross-encoder:{getattr(card, 'base_model', None) or type(self._given).__name__}"

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank passages by the model's scores; a blank passage is not read and comes last.

        Raises:
            ModelNotFoundError: The model is not on this machine.
            ModelError: The model cannot be loaded, fails, or gives more than one number for a pair.
        """
        scores = np.full(len(passages), -math.inf)
        filled = [index for index, passage in enumerate(passages) if passage.strip()]
        if filled:
            question = well_formed(query)
            pairs = [(question, well_formed(passages[index])) for index in filled]
            scores[filled] = self._predicted(pairs)
        return Ranking.from_scores(scores.tolist())

    def _predicted(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        try:
            with self._lock:
                predicted = self._model().predict(pairs, show_progress_bar=False)
        except EcsPluginsError:
            raise
        except Exception as error:
            raise ModelError(f"{self.name} failed: {type(error).__name__}: {error}") from error
        scores = np.asarray(predicted, dtype=np.float64)
        if scores.shape != (len(pairs),):
            raise ModelError(
                f"{self.name} returned shape {scores.shape} for {len(pairs)} pairs; a ranker needs "
                "a cross-encoder with one label"
            )
        # The last bits of a score depend on what else is in the batch; equal texts must tie.
        return scores.round(5)

    def _model(self) -> CrossEncoder:
        if not isinstance(self._given, str | Path):
            given: CrossEncoder = self._given
            return given
        if self._loaded is None:
            self._loaded = self._load(str(self._given))
        return self._loaded

    def _load(self, name: str) -> CrossEncoder:
        from sentence_transformers import CrossEncoder

        source = located(name, "cross-encoder", _ADVICE, allow_download=self._allow_download)
        refuse_code(Path(source), "cross-encoder")
        device = None if self._device == "auto" else self._device
        with without_progress_bars():
            encoder: CrossEncoder = CrossEncoder(
                source,
                device=device,
                local_files_only=not self._allow_download,
                model_kwargs={"use_safetensors": True},
            )
        return encoder
