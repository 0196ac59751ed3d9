"""Where the weights of sentence-transformers lie, and that nobody's code is run to load them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ecs_plugins.errors import ModelError, ModelNotFoundError


def located(name: str, what: str, advice: str, *, allow_download: bool) -> str:
    """Return a local directory, or the name of a model that may be downloaded.

    Args:
        name: A name on the model hub, or a directory.
        what: What is looked for, such as ``"embedder"``.
        advice: What to do where it is not there.
        allow_download: Whether the hub may be asked.

    Raises:
        ModelNotFoundError: It is not on this machine and may not be downloaded.
    """
    if allow_download or Path(name).is_dir():
        return name
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    repository = name if "/" in name else f"sentence-transformers/{name}"
    with suppress(LocalEntryNotFoundError, HFValidationError):
        return snapshot_download(repository, local_files_only=True)
    raise ModelNotFoundError(
        f"the {what} {name} is not on this machine, and nothing is downloaded unasked. {advice}"
    )


def refuse_code(directory: Path, what: str) -> None:
    """Refuse a directory whose modules are none of sentence-transformers' own.

    Version 5 of that library runs their code even where it is told not to.
    """
    modules = _read(directory / "modules.json", [])
    kinds = [module["type"] for module in modules]
    for file in directory.rglob("router_config.json"):
        router = _read(file, {})
        kinds += router.get("types", {}).values()
    for kind in kinds:
        if not str(kind).startswith("sentence_transformers."):
            raise ModelError(
                f"the {what} in {directory} asks for code of its own ({kind}), which is not run; "
                "use one of the modules that sentence-transformers itself has"
            )


def _read(file: Path, default: Any) -> Any:
    return json.loads(file.read_bytes()) if file.is_file() else default
