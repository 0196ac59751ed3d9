"""Endpoint of attribution."""

import httpx
import pytest

from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.server.requests import LONGEST_ANSWER, LONGEST_QUERY
from ecs_plugins.server.rerank import rerank_app
from ecs_plugins.server.service import Bounds
from tests.integration.citing_setup import ANSWER, PASSAGES, QUESTION, QUOTE, Failing
from tests.integration.server.conftest import Patient, calling, shaper_on

BODY = {
    "query": QUESTION,
    "answer": ANSWER,
    "documents": list(PASSAGES),
}
LONG_QUERY = "q" * (LONGEST_QUERY + 1)
LONG_ANSWER = "a" * (LONGEST_ANSWER + 1)
TOKEN = "a" * 16


def app(model=None, **options):
    return rerank_app(shaper_on(model), **options)


def post(client, **fields):
    return client.post("/v1/attribute", json={**BODY, **fields})


def test_every_statement_has_its_citations_and_the_answer_its_marks():
    answer = post(calling(app())).json()
    (statement,) = answer["statements"]
    (citation,) = statement["citations"]
    assert citation["passage"] == 1
    assert citation["quote"] == QUOTE
    assert answer["cited"] == [1]
    assert answer["marked"] == "The company of Gustave Eiffel built it in 1889 [1]."
    assert answer["model"] == "fake"
    assert answer["check"] == statement["check"] == "consistent"


def test_documents_may_be_objects_and_an_answer_may_state_nothing():
    documents = [{"text": text} for text in PASSAGES]
    client = calling(app())
    answer = post(client, documents=documents).json()
    assert answer["cited"] == [1]
    refusal = post(client, answer="I don't know.").json()
    assert refusal["statements"] == []
    assert refusal["check"] is None
    assert refusal["marked"] == "I don't know."


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"query": ""}, "query"),
        ({"answer": "  "}, "answer"),
        ({"answer": None}, "answer"),
        ({"query": LONG_QUERY}, "at most 8000"),
        ({"answer": LONG_ANSWER}, "at most 20000"),
        ({"documents": ["a"] * 1001}, "at most 1000"),
        ({"documents": [{"title": "a"}]}, "documents.0"),
        ({"documents": "a"}, "documents"),
    ],
)
def test_a_bad_request_is_explained_before_computing(fields, says):
    model = FakeLanguageModel()
    client = calling(app(model))
    answer = post(client, **fields)
    assert answer.status_code == 422
    assert says in answer.json()["detail"]
    assert model.requests == []


def test_a_model_that_cannot_score_is_a_status_and_not_a_guess():
    client = calling(app(Failing()))
    assert post(client).status_code == 500


def test_it_is_guarded_and_counted_like_the_others():
    client = calling(app(tokens={TOKEN: "ana"}))
    assert post(client).status_code == 401
    client.headers = {"Authorization": f"Bearer {TOKEN}"}
    assert post(client).status_code == 200
    shown = client.get("/metrics").text
    assert "ecs_attribute_statements_total 1.0" in shown
    assert 'ecs_rerank_requests_total{status="200"} 1.0' in shown


def test_work_that_takes_too_long_or_is_left_stops(serve):
    model = Patient()
    bounds = Bounds(seconds=0.3)
    url = serve(app(model, bounds=bounds))
    answer = httpx.post(f"{url}/v1/attribute", json=BODY, timeout=30)
    assert answer.status_code == 504
    assert model.given_up.wait(5)
    left = Patient()
    url = serve(app(left))
    impatient = httpx.Timeout(5, read=0.3)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/v1/attribute", json=BODY, timeout=impatient)
    assert left.given_up.wait(5)
