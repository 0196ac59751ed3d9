"""Setup that several commands share: options, models, a model of the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.errors import ConfigurationError

if TYPE_CHECKING:
    from ecs_plugins.frontier.answering import AnswerModel
    from ecs_plugins.lm.base import LanguageModel

ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="A model's name or directory; without it the bundled one."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write JSON and nothing else to standard output.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="auto, float32, bfloat16 or float16. On a CPU, auto is float32, or bfloat16 if the "
        "CPU multiplies at least 1.5 times as fast in it.",
    ),
]


def load_model(
    name_or_path: str | None, *, device: str = "auto", dtype: str = "auto"
) -> LanguageModel:
    """Load the model that ``--model`` names; the bundled one without a name.

    It is loaded here, and not on first use, so that measured seconds do not include it.
    """
    from transformers.utils.logging import disable_progress_bar

    from ecs_plugins.lm.local import LocalLM

    disable_progress_bar()  # type: ignore[no-untyped-call]  # commands show their own
    model = (
        LocalLM.bundled(device=device, dtype=dtype)
        if name_or_path is None
        else LocalLM.from_pretrained(name_or_path, device=device, dtype=dtype)
    )
    return model.warmup()


def imported_answer_model(
    path: str, count_tokens: Callable[[Sequence[str]], Sequence[int]]
) -> AnswerModel:
    """Import ``module:attribute``, from the working directory first.

    It is a LangChain chat model, a LlamaIndex LLM, an `AnswerModel`, or a function without
    arguments that returns one.
    """
    from ecs_plugins.frontier.answering import as_answer_model

    name, _, attribute = path.partition(":")
    if not name or not attribute:
        raise ConfigurationError(
            f"--answer-model takes module:attribute, such as my_models:chat, got {path!r}"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        model = getattr(import_module(name), attribute)
        if not any(hasattr(model, method) for method in ("complete", "invoke", "generate")):
            model = model()
    except Exception as error:  # the module is the user's: it may raise anything
        raise ConfigurationError(
            f"--answer-model {path}: {type(error).__name__}: {error}"
        ) from error
    return as_answer_model(model, count_tokens=count_tokens)
