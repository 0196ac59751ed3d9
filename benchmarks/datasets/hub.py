"""One file of a data set of the Hugging Face hub, on request."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ecs_plugins.errors import InvalidInputError, StorageError

HUB_ADDRESS = "hf://datasets/"
_PARTS = re.compile(
    rf"{HUB_ADDRESS}(?P<repo>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?/(?P<file>[^@]*[^/@])"
)


def data_file(source: str | os.PathLike[str]) -> Path:
    """A path as it is; a file of a hub data set is fetched into the hub's own cache first.

    Nothing is fetched but the one file that was asked for.

    Args:
        source: A path, or ``hf://datasets/OWNER/NAME[@REVISION]/FILE``.

    Raises:
        InvalidInputError: The address is not of that form.
        StorageError: The file is not there, or the hub cannot be reached.
    """
    address = os.fspath(source)
    if not address.startswith("hf:"):
        return Path(source)
    parts = _PARTS.fullmatch(address)
    if parts is None:
        raise InvalidInputError(
            f"{address!r} names no file of a data set: write {HUB_ADDRESS}OWNER/NAME/FILE, with "
            "OWNER/NAME@REVISION for a certain version"
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        found = hf_hub_download(
            parts["repo"], parts["file"], repo_type="dataset", revision=parts["revision"]
        )
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise StorageError(
            f"cannot fetch {address}: {reason}. Download the file by hand and name its path, or "
            "check the address and the connection"
        ) from error
    return Path(found)
