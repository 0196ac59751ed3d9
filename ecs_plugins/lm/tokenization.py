"""From segments to token ids: each piece by itself, joined as ids, untrusted text kept inert.

What this module decides:

* Pieces are tokenised separately, so a continuation has the same ids behind every candidate.
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
from typing import TYPE_CHECKING, Protocol

from ecs_plugins.common.text import well_formed
from ecs_plugins.lm.base import Segment, Segments

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

Ids = tuple[int, ...]

_ANCHORS = ("\n", ".", "|")
_PROBES = ("a", "b", "The", "1")


class _Backend(Protocol):
    def encode(self, texts: Sequence[str], *, trusted: bool) -> list[list[int]]: ...


class _RustBackend:
    """Two private copies of a fast tokenizer whose settings never change.

    transformers flips settings of its one shared copy on every call, which raises "Already
    borrowed" as soon as two threads meet there.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._parsing, self._inert = copy.deepcopy(tokenizer), copy.deepcopy(tokenizer)
        for own in (self._parsing, self._inert):
            own.no_truncation()
            own.no_padding()
            own.encode_special_tokens = own is self._inert

    def encode(self, texts: Sequence[str], *, trusted: bool) -> list[list[int]]:
        own = self._parsing if trusted else self._inert
        return [e.ids for e in own.encode_batch(list(texts), add_special_tokens=False)]


class _PythonBackend:
    """A tokenizer without a Rust core: one private copy behind a lock."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._own = copy.deepcopy(tokenizer)
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], *, trusted: bool) -> list[list[int]]:
        how = {"add_special_tokens": False, "split_special_tokens": not trusted}
        with self._lock:
            return [list(self._own.encode(text, **how)) for text in texts]


class SegmentEncoder:
    """Encodes segments for one tokenizer. Thread-safe.

    Args:
        tokenizer: A transformers tokenizer; copied, never changed.
        control_text: Template text of the model. Added tokens that occur in it are control
            tokens even if the tokenizer does not mark them as special.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, control_text: str = "") -> None:
        rust = getattr(tokenizer, "backend_tokenizer", None)
        self._backend: _Backend = _PythonBackend(tokenizer) if rust is None else _RustBackend(rust)
        self.lead = _lead(tokenizer)
        """What the tokenizer itself puts before a text: the ids of BOS, or nothing."""
        self.start = self.lead or _start(tokenizer)
        """What to put before a text that would otherwise begin with a scored token."""
        self._anchor = self._find_anchor()
        self._spelled: dict[int, Ids] = {}
        self._spelled = self._spell(_control_tokens(tokenizer, control_text))

    def encode(self, segments: Segments, *, at_head: bool = False) -> list[Ids]:
        """Ids of every segment.

        ``at_head`` the first one begins the prompt, where a tokenizer may put its usual space.
        """
        if not at_head or not segments:
            return self._encode(segments)
        return [*self._encode(segments[:1], natural=True), *self._encode(segments[1:])]

    def join(self, segments: Segments, *, at_head: bool = False) -> Ids:
        """Ids of all segments as one sequence."""
        return tuple(i for ids in self.encode(segments, at_head=at_head) for i in ids)

    def with_lead(self, ids: Ids) -> Ids:
        """``ids`` as the head of a prompt: with BOS, once, if this tokenizer adds one."""
        return ids if ids[: len(self.lead)] == self.lead else self.lead + ids

    def _encode(self, segments: Segments, *, natural: bool = False) -> list[Ids]:
        out: list[Ids] = [()] * len(segments)
        for trusted in (True, False):
            where = [i for i, s in enumerate(segments) if s.trusted is trusted and s.text]
            texts = list(dict.fromkeys(segments[i].text for i in where))
            if not texts:
                continue
            encoded = self._texts(
                [well_formed(text) for text in texts], trusted=trusted, natural=natural
            )
            ids = dict(zip(texts, encoded, strict=True))
            for i in where:
                out[i] = ids[segments[i].text]
        return out

    def _texts(self, texts: list[str], *, trusted: bool, natural: bool = False) -> list[Ids]:
        encoded = (
            self._backend.encode(texts, trusted=trusted)
            if natural or self._anchor is None
            else self._after_anchor(texts, trusted=trusted)
        )
        return [tuple(ids) if trusted else self._inert(ids) for ids in encoded]

    def _after_anchor(self, texts: list[str], *, trusted: bool) -> list[list[int]]:
        out: list[list[int]] = []
        assert self._anchor is not None
        anchors = (self._anchor, *(a for a in _ANCHORS if a != self._anchor))
        heads = self._backend.encode(anchors, trusted=trusted)
        encoded = self._backend.encode([self._anchor + text for text in texts], trusted=trusted)
        for text, ids in zip(texts, encoded, strict=True):
            for anchor, head in zip(anchors, heads, strict=True):
                if anchor != self._anchor:
                    (ids,) = self._backend.encode([anchor + text], trusted=trusted)
                if ids[: len(head)] == head:
                    out.append(ids[len(head) :])
                    break
            else:
                out.extend(self._backend.encode([text], trusted=trusted))
        return out

    def _find_anchor(self) -> str | None:
        """A text behind which pieces lose the space that the tokenizer puts before a text."""
        alone = self._backend.encode(_PROBES, trusted=True)
        for anchor in _ANCHORS:
            (head,) = self._backend.encode([anchor], trusted=True)
            behind = self._backend.encode([anchor + probe for probe in _PROBES], trusted=True)
            if head and all(ids[: len(head)] == head for ids in behind):
                differs = [ids[len(head) :] for ids in behind] != alone
                return anchor if differs else None
        return None

    def _inert(self, ids: list[int]) -> Ids:
        if not any(i in self._spelled for i in ids):
            return tuple(ids)
        return tuple(j for i in ids for j in self._spelled.get(i, (i,)))

    def _spell(self, control: dict[int, str]) -> dict[int, Ids]:
        spelled: dict[int, Ids] = {}
        for token, text in control.items():
            letters = [i for ids in self._texts(list(text), trusted=False) for i in ids]
            spelled[token] = tuple(i for i in letters if i not in control)
        return spelled


def count(encoder: SegmentEncoder, texts: Sequence[str]) -> list[int]:
    """Tokens of each text, special tokens off."""
    return [len(ids) for ids in encoder.encode(tuple(Segment(text) for text in texts))]


def _lead(tokenizer: PreTrainedTokenizerBase) -> Ids:
    bare = list(tokenizer.encode("a", add_special_tokens=False))
    full = list(tokenizer.encode("a", add_special_tokens=True))
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return tuple(full[:at])
    return ()


def _start(tokenizer: PreTrainedTokenizerBase) -> Ids:
    for token in (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id):
        if isinstance(token, int):
            return (token,)
    return ()


def _control_tokens(tokenizer: PreTrainedTokenizerBase, control_text: str) -> dict[int, str]:
    control = {
        int(token): added.content
        for token, added in tokenizer.added_tokens_decoder.items()
        if added.special or (added.content.strip() and added.content in control_text)
    }
    control.update(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=False))
    unknown = tokenizer.unk_token_id
    if unknown not in (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.sep_token_id):
        # An unknown character is an ordinary token, and often the only way to write it.
        control.pop(unknown, None)
    return control
