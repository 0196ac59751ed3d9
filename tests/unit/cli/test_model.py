import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # starts an interpreter per command


@pytest.fixture
def ecs(tmp_path, monkeypatch):
    monkeypatch.setenv("ECS_PLUGINS_CACHE", str(tmp_path))

    def run(*arguments):
        command = [sys.executable, "-m", "ecs_plugins", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_a_missing_model_is_one_line_on_stderr_and_status_1(ecs):
    done = ecs("model", "path")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "ecs-plugins: the default model SmolLM2-135M-Instruct is not installed. "
        "Run: ecs-plugins model install"
    ]


def test_listing_a_missing_model_says_how_to_install_it(ecs):
    done = ecs("model", "list")
    assert done.returncode == 0
    assert "missing" in done.stdout
    assert "ecs-plugins model install" in done.stderr


def test_listing_a_damaged_model_has_status_1(ecs, tmp_path):
    (tmp_path / "models" / "SmolLM2-135M-Instruct").mkdir(parents=True)
    done = ecs("model", "list")
    assert done.returncode == 1
    assert "damaged" in done.stdout
    assert len(done.stderr.splitlines()) == 1


def test_removing_nothing_is_no_error(ecs):
    done = ecs("model", "remove")
    assert (done.returncode, done.stderr) == (0, "Nothing was installed\n")


def test_installing_from_a_file_that_is_not_there_is_one_line(ecs, tmp_path):
    done = ecs("model", "install", "--from", str(tmp_path / "no.whl"))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "is not a file" in done.stderr


def test_installing_a_wrong_file_says_that_its_digest_is_wrong(ecs, tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    done = ecs("model", "install", "--from", str(tmp_path / "other.gguf"))
    assert done.returncode == 1
    assert "SHA-256" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_help_loads_no_torch():
    script = (
        "import sys; sys.argv = ['ecs-plugins', 'model', '--help']\n"
        "from ecs_plugins.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "install" in done.stdout
