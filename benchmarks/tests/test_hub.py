"""Files of hub data sets: requests and refusals."""

import pytest

from benchmarks.datasets.hub import data_file
from ecs_plugins.errors import InvalidInputError, StorageError


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Hub client with one file that records requests."""
    calls = []

    def download(repo, file, *, repo_type, revision):
        calls.append((repo, file, repo_type, revision))
        if not file.endswith("dev.jsonl"):
            raise OSError("404 not found.\nmore")
        return str(tmp_path / "dev.jsonl")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return calls


def test_a_path_stays_as_it_is(tmp_path):
    assert data_file(str(tmp_path / "questions.jsonl")) == tmp_path / "questions.jsonl"


def test_one_file_of_one_version_is_asked_for(asked, tmp_path):
    found = data_file("hf://datasets/owner/name@v1/folder/dev.jsonl")
    assert found == tmp_path / "dev.jsonl"
    assert asked == [("owner/name", "folder/dev.jsonl", "dataset", "v1")]


def test_a_file_that_the_hub_does_not_hold_is_a_storage_error(asked):
    wanted = r"cannot fetch hf://datasets/owner/name/no\.json: 404 not found\. Download"
    with pytest.raises(StorageError, match=wanted):
        data_file("hf://datasets/owner/name/no.json")


@pytest.mark.parametrize(
    "address",
    ["hf://owner/name/dev.json", "hf://datasets/name", "hf://datasets/owner/name/", "hf:/x/y/z"],
)
def test_an_address_of_another_form_says_how_to_write_it(address):
    with pytest.raises(InvalidInputError, match="hf://datasets/OWNER/NAME/FILE"):
        data_file(address)
