"""Conversion of segments to token ids: each piece alone, untrusted text without control tokens.

* Pieces are tokenised separately, so a continuation has the same ids after every candidate.
  That differs from tokenising the joined string, where merges cross the borders.
* Untrusted text never yields a control token (``<|im_end|>``, ``</s>``, ``[SEP]``), neither as
  an added token nor through the vocabulary, where SentencePiece models keep them too.
* A tokenizer that puts a space before every text (SentencePiece) does so only at the head of a
  prompt; elsewhere a piece begins with a space only if its text does.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from ecs_plugins.common.text import well_formed
from ecs_plugins.lm.base import Segment, Segments

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

Ids = tuple[int, ...]
Encoded = list[int]
"""Ids as tokenizers return them."""

_ANCHORS = ("\n", ".", "|")
"""Texts to put before a piece, so that it loses the space of a text's beginning."""
_PROBES = ("a", "b", "The", "1")
"""Pieces by which an anchor is tried."""


class _Backend(Protocol):
    def encode(self, texts: Sequence[str], *, trusted: bool) -> list[Encoded]: ...


class _RustBackend:
    """Two private copies of a fast tokenizer whose settings never change.

    transformers flips settings of its one shared copy on every call, which raises "Already
    borrowed" as soon as two threads meet there.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._parsing = _whole_texts(tokenizer)
        self._inert = _whole_texts(tokenizer)
        self._inert.encode_special_tokens = True

    def encode(self, texts: Sequence[str], *, trusted: bool) -> list[Encoded]:
        own = self._parsing if trusted else self._inert
        encodings = own.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


def _whole_texts(tokenizer: Tokenizer) -> Tokenizer:
    """Copy a tokenizer so that it neither cuts nor pads, and parses special tokens."""
    own: Tokenizer = copy.deepcopy(tokenizer)
    own.no_truncation()
    own.no_padding()
    own.encode_special_tokens = False
    return own


class _PythonBackend:
    """Tokenizer without a Rust core: one private copy with a lock."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._own = copy.deepcopy(tokenizer)
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], *, trusted: bool) -> list[Encoded]:
        options = {
            "add_special_tokens": False,
            "split_special_tokens": not trusted,
        }
        encoded = []
        with self._lock:
            for text in texts:
                ids = self._own.encode(text, **options)
                encoded.append(list(ids))
        return encoded


class SegmentEncoder:
    """Encodes segments for one tokenizer. Thread-safe.

    Args:
        tokenizer: A transformers tokenizer; copied, never changed.
        control_text: Template text of the model. Added tokens that occur in it are control
            tokens even if the tokenizer does not mark them as special.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, control_text: str = "") -> None:
        rust = getattr(tokenizer, "backend_tokenizer", None)
        self._backend: _Backend
        if rust is None:
            self._backend = _PythonBackend(tokenizer)
        else:
            self._backend = _RustBackend(rust)
        self.lead = _lead(tokenizer)
        """What the tokenizer itself puts before a text: the ids of BOS, or nothing."""
        self.start = self.lead or _start(tokenizer)
        """What to put before a text that would otherwise begin with a scored token."""
        self._anchor = self._find_anchor()
        self._spelled: dict[int, Ids] = {}
        control = _control_tokens(tokenizer, control_text)
        self._spelled = self._spell(control)

    def encode(self, segments: Segments, *, at_head: bool = False) -> list[Ids]:
        """Return the ids of every segment.

        ``at_head`` the first one begins the prompt, where a tokenizer may put its usual space.
        """
        if not at_head or not segments:
            return self._encode(segments)
        first = self._encode(segments[:1], natural=True)
        others = self._encode(segments[1:])
        return first + others

    def join(self, segments: Segments, *, at_head: bool = False) -> Ids:
        """Return the ids of all segments as one sequence."""
        pieces = self.encode(segments, at_head=at_head)
        return tuple(chain.from_iterable(pieces))

    def with_lead(self, ids: Ids) -> Ids:
        """Return ``ids`` as the head of a prompt: with BOS, once, if this tokenizer adds one."""
        if ids[: len(self.lead)] == self.lead:
            return ids
        return self.lead + ids

    def _encode(self, segments: Segments, *, natural: bool = False) -> list[Ids]:
        encoded: list[Ids] = [()] * len(segments)
        for trusted in (True, False):
            numbers = [
                number
                for number, segment in enumerate(segments)
                if segment.text and segment.trusted is trusted
            ]
            texts = [segments[number].text for number in numbers]
            ids = self._texts(texts, trusted=trusted, natural=natural)
            for number, own in zip(numbers, ids, strict=True):
                encoded[number] = own
        return encoded

    def _texts(
        self,
        texts: Sequence[str],
        *,
        trusted: bool,
        natural: bool = False,
    ) -> list[Ids]:
        """Return the ids of texts that are not empty."""
        if not texts:
            return []
        whole = [well_formed(text) for text in texts]
        if natural or self._anchor is None:
            encoded = self._backend.encode(whole, trusted=trusted)
        else:
            encoded = self._after_anchor(whole, self._anchor, trusted=trusted)
        if trusted:
            return [tuple(ids) for ids in encoded]
        return [self._inert(ids) for ids in encoded]

    def _after_anchor(
        self,
        texts: Sequence[str],
        anchor: str,
        *,
        trusted: bool,
    ) -> list[Encoded]:
        """Return the ids of texts that follow others, without the space of a text's beginning."""
        encoded = []
        for text, ids in zip(
            texts,
            self._after(anchor, texts, trusted=trusted),
            strict=True,
        ):
            if ids is None:
                encoded.append(self._after_another(text, anchor, trusted=trusted))
            else:
                encoded.append(ids)
        return encoded

    def _after_another(self, text: str, anchor: str, *, trusted: bool) -> Encoded:
        """Return the ids of a text that merges with the anchor, by another anchor or alone."""
        for other in _ANCHORS:
            if other == anchor:
                continue
            (ids,) = self._after(other, [text], trusted=trusted)
            if ids is not None:
                return ids
        (alone,) = self._backend.encode([text], trusted=trusted)
        return alone

    def _after(
        self,
        anchor: str,
        texts: Sequence[str],
        *,
        trusted: bool,
    ) -> list[Encoded | None]:
        """Return the ids of texts after an anchor; None for texts that merge with it."""
        joined = [anchor + text for text in texts]
        head, *encoded = self._backend.encode([anchor, *joined], trusted=trusted)
        length = len(head)
        after: list[Encoded | None] = []
        for ids in encoded:
            is_apart = ids[:length] == head
            after.append(ids[length:] if is_apart else None)
        return after

    def _find_anchor(self) -> str | None:
        """Find a text after which pieces lose the space that the tokenizer puts before a text."""
        alone = self._backend.encode(_PROBES, trusted=True)
        for anchor in _ANCHORS:
            (head,) = self._backend.encode([anchor], trusted=True)
            if not head:
                continue
            after = self._after(anchor, _PROBES, trusted=True)
            if None in after:
                continue
            return None if after == alone else anchor
        return None

    def _inert(self, ids: Encoded) -> Ids:
        """Replace every control token by the ids of its letters."""
        if self._spelled.keys().isdisjoint(ids):
            return tuple(ids)
        inert: Encoded = []
        for token in ids:
            letters = self._spelled.get(token, (token,))
            inert.extend(letters)
        return tuple(inert)

    def _spell(self, control: dict[int, str]) -> dict[int, Ids]:
        """Return the ids of the letters of every control token."""
        spelled: dict[int, Ids] = {}
        for token, text in control.items():
            ids = self._texts(text, trusted=False)
            letters = chain.from_iterable(ids)
            harmless = [letter for letter in letters if letter not in control]
            spelled[token] = tuple(harmless)
        return spelled


def count(encoder: SegmentEncoder, texts: Sequence[str]) -> list[int]:
    """Count the tokens of each text, without special tokens."""
    segments = tuple(map(Segment, texts))
    encoded = encoder.encode(segments)
    return [len(ids) for ids in encoded]


def _lead(tokenizer: PreTrainedTokenizerBase) -> Ids:
    bare = list(tokenizer.encode("a", add_special_tokens=False))
    full = list(tokenizer.encode("a", add_special_tokens=True))
    length = len(bare)
    added = len(full) - length
    for start in range(added + 1):
        end = start + length
        if full[start:end] == bare:
            return tuple(full[:start])
    return ()


def _start(tokenizer: PreTrainedTokenizerBase) -> Ids:
    candidates = (
        tokenizer.bos_token_id,
        tokenizer.cls_token_id,
        tokenizer.eos_token_id,
    )
    for token in candidates:
        if isinstance(token, int):
            return (token,)
    return ()


def _control_tokens(tokenizer: PreTrainedTokenizerBase, control_text: str) -> dict[int, str]:
    """Return ids and texts of the control tokens of a model."""
    control: dict[int, str] = {}
    for token, added in tokenizer.added_tokens_decoder.items():
        text = added.content
        in_template = text.strip() != "" and text in control_text
        if added.special or in_template:
            control[int(token)] = text
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=False)
    control.update(named)
    unknown = tokenizer.unk_token_id
    others = (
        tokenizer.eos_token_id,
        tokenizer.bos_token_id,
        tokenizer.sep_token_id,
    )
    if unknown not in others:
        # An unknown character is an ordinary token, and often the only way to write it.
        control.pop(unknown, None)
    return control
