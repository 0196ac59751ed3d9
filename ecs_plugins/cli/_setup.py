"""What several commands set up in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel

DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
DtypeOption = Annotated[
    str,
    typer.Option("--dtype", help="auto, float32, bfloat16 or float16: auto is float32 on a CPU."),
]


def load_model(
    name_or_path: str | None, *, device: str = "auto", dtype: str = "auto"
) -> LanguageModel:
    """The model that a ``--model`` option names, ready to score; the bundled one without it.

    Loaded here and not on first use, so that seconds which a command reports hold none of it.

    Args:
        name_or_path: A directory or hub name.
        device: As `LocalLM.from_pretrained` takes it.
        dtype: Likewise.

    Raises:
        ModelNotFoundError: It is not on this machine.
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
