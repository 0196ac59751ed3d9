"""Prompts as trusted and untrusted segments, from templates and chat layouts.

Template text is trusted, so its special tokens are parsed; the value of a field is not. A prompt
has the parts of a `ScoreRequest`:

    prefix       = layout.head + before
    candidate    = passage
    continuation = after + layout.tail + cue + response

A chat template is rendered once with a sentinel in place of the content and cut there, so contents
never pass through the template language.
"""

from __future__ import annotations

import string
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import ChatLayout, Segment, Segments

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLAIN = ChatLayout(head="", tail="\n", chat=False)
"""The layout of a model without a chat template."""


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """Plain text with ``{fields}``; replace any part with your own.

    One space directly before a field belongs to the field, so that a tokenizer sees " Paris"
    and not "Paris"; a field that is empty and not scored leaves that space out too.

    Attributes:
        before: In the prefix, shared by all passages. May hold ``{context}``, ``{question}``.
        passage: The wrapper of one passage, with ``{passage}``. All of it belongs to the
            candidate: the empty candidate leaves nothing after.
        after: First part of the continuation, still said by the user.
        cue: The start of the reply.
        response: The rest of the reply, usually ``{answer}``.

    Raises:
        ConfigurationError: A part is not a valid template, or ``{passage}`` is missing from
            ``passage`` or stands elsewhere.
    """

    before: str = "{context}"
    passage: str = "{passage}\n"
    after: str = "Question: {question}"
    cue: str = "Answer:"
    response: str = " {answer}"

    def __post_init__(self) -> None:
        for part in fields(self):
            names = [name for _, name in _parse(getattr(self, part.name), part.name)]
            if ("passage" in names) is not (part.name == "passage"):
                raise ConfigurationError(
                    f"{{passage}} belongs into the part 'passage' of a PromptTemplate and nowhere "
                    f"else; got {part.name}={getattr(self, part.name)!r}"
                )

    def prefix(self, layout: ChatLayout, values: Mapping[str, str]) -> Segments:
        """Return the segments before every passage.

        Raises:
            ConfigurationError: A field of the template has no value.
        """
        return _merge((_trusted(layout.head), *_fill("before", self.before, values)))

    def candidate(self, passage: str, values: Mapping[str, str] | None = None) -> Segments:
        """Return one passage in its wrapper; nothing for the empty passage."""
        if not passage:
            return ()
        return _merge(_fill("passage", self.passage, {**(values or {}), "passage": passage}))

    def continuation(
        self,
        layout: ChatLayout,
        values: Mapping[str, str],
        scored: Collection[str] = ("answer",),
    ) -> Segments:
        """Return the segments after every passage, with the fields in ``scored`` marked.

        Raises:
            ConfigurationError: A field has no value, or a scored field is not in the template.
        """
        segments = (
            *_fill("after", self.after, values, scored),
            _trusted(layout.tail),
            *_fill("cue", self.cue, values, scored),
            *_fill("response", self.response, values, scored),
        )
        parts = _parse(f"{self.after}{self.cue}{self.response}", "")
        present = {name for _, name in parts if name}
        unknown = sorted(set(scored) - present)
        if unknown:
            raise ConfigurationError(
                f"cannot score {unknown}: the template's after, cue and response hold "
                f"{sorted(present)}. Add the field to one of them or score another."
            )
        return _merge(segments)

    def prompt(self, layout: ChatLayout, passage: str, values: Mapping[str, str]) -> Segments:
        """Return everything up to the cue: a prompt to generate the response from."""
        return _merge(
            (
                *self.prefix(layout, values),
                *self.candidate(passage, values),
                *_fill("after", self.after, values),
                _trusted(layout.tail),
                *_fill("cue", self.cue, values),
            )
        )


def chat_layout(tokenizer: PreTrainedTokenizerBase) -> ChatLayout:
    """Return the layout of one user turn, from the chat template if there is a usable one."""
    if not getattr(tokenizer, "chat_template", None):
        return PLAIN
    mark = "ECS0000SENTINEL"
    try:
        # A thinking block would stand between the question and the answer that is scored;
        # templates that know no such switch ignore it.
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": mark}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        head, *tails = str(text).split(mark)
        problem = "" if len(tails) == 1 else "it drops or repeats what the user says"
    except Exception as error:  # templates raise whatever their authors chose
        problem = f"it refuses a turn of the user ({error})"
    if not problem:
        return ChatLayout(head=head, tail=tails[0], chat=True)
    warnings.warn(
        f"the chat template cannot be used, a plain layout is used instead: {problem}",
        RuntimeWarning,
        stacklevel=2,
    )
    return PLAIN


def split_cue(text: str) -> tuple[str, str]:
    """Split a prompt from the start of its reply: a last line that ends with a colon, else ``""``.

    Small models answer at once after ``Answer:`` and introduce their answer without it.
    """
    prompt, _, cue = text.rpartition("\n")
    if prompt and cue.endswith(":"):
        return prompt, cue
    return text, ""


def _parse(text: str, part: str) -> list[tuple[str, str | None]]:
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ConfigurationError(
            f"the part {part!r} of a PromptTemplate is not a valid template ({error}); write a "
            "literal brace as {{ or }}"
        ) from error
    for _, name, spec, conversion in parsed:
        if name is not None and (spec or conversion or not name.isidentifier()):
            raise ConfigurationError(
                f"a field of a PromptTemplate is a plain name such as {{question}}; "
                f"got {{{name}}} with format or conversion in {part!r}"
            )
    return [(literal, name) for literal, name, _, _ in parsed]


def _fill(
    part: str,
    text: str,
    values: Mapping[str, str],
    scored: Collection[str] = (),
) -> list[Segment]:
    out: list[Segment] = []
    for literal, name in _parse(text, part):
        if name is None:
            out.append(_trusted(literal))
            continue
        if name not in values:
            raise ConfigurationError(
                f"the part {part!r} of the template needs {{{name}}}, but only "
                f"{sorted(values)} are given"
            )
        value = values[name]
        out.append(_trusted(literal.removesuffix(" ")))
        if value and literal.endswith(" "):
            value = f" {value}"
        if value or name in scored:
            out.append(Segment(value, scored=name in scored))
    return out


def _trusted(text: str) -> Segment:
    return Segment(text, trusted=True)


def _merge(segments: Sequence[Segment]) -> Segments:
    """Join neighbouring template texts, so that they are tokenised as the template has them."""
    out: list[Segment] = []
    for segment in segments:
        if not segment.text and not segment.scored:
            continue
        if out and segment.trusted and out[-1].trusted:
            out[-1] = _trusted(out[-1].text + segment.text)
        else:
            out.append(segment)
    return tuple(out)
