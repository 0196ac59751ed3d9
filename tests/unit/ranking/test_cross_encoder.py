"""A cross-encoder of sentence-transformers as a ranker, with a tiny one of random weights."""

import json
import math
import pickle

import pytest

from ecs_plugins.errors import ModelError, ModelNotFoundError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking import CrossEncoderRanker, Ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig

pytestmark = pytest.mark.model

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "where",
    "do",
    "the",
    "bees",
    "live",
    "in",
    "old",
    "mill",
    "water",
    "station",
]
PASSAGES = ["the bees live in the mill", " ", "old water", "the bees live in the mill"]


def saved(folder, labels=1):
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, set_seed

    set_seed(7)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=labels,
        initializer_range=1.0,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    BertTokenizer(str(vocabulary)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("cross-encoder"))


def test_scores_are_those_of_the_model_and_a_blank_passage_comes_last(directory):
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(directory), local_files_only=True)
    query = "where do the bees live"
    expected = model.predict([(query, PASSAGES[0]), (query, PASSAGES[2])])
    for given in (directory, str(directory), model):
        ranker = CrossEncoderRanker(given)
        ranking = ranker.rank(query, PASSAGES)
        assert isinstance(ranker, Ranker)
        assert [ranking.scores[0], ranking.scores[2]] == pytest.approx(expected, abs=1e-4)
        assert ranking.scores[0] == ranking.scores[3]
        assert ranking.order[-1] == 1
        assert ranking.scores[1] == -math.inf
    assert CrossEncoderRanker(directory).rank(query, []).order == ()


def test_it_is_pickled_without_weights(directory):
    ranker = CrossEncoderRanker(directory)
    ranking = ranker.rank("bees", PASSAGES)
    pickled = pickle.dumps(ranker)
    assert len(pickled) < 1_000
    assert pickle.loads(pickled).rank("bees", PASSAGES) == ranking


def test_it_is_stage_1_of_shaping_and_all_of_it_without_a_signal(directory):
    ranker = CrossEncoderRanker(directory)
    order = ranker.rank("bees", PASSAGES).order
    config = ShapingConfig(ranker=ranker, signal=None, top_k=1)
    (kept,) = ContextShaper(FakeLanguageModel(), config).shape("bees", PASSAGES).kept
    assert kept.index == order[0]


def test_an_invalid_cross_encoder_is_refused(directory, tmp_path):
    with pytest.raises(ModelNotFoundError, match="allow_download=True to CrossEncoderRanker"):
        CrossEncoderRanker("nobody/nothing").rank("bees", PASSAGES)
    three = CrossEncoderRanker(saved(tmp_path / "three", labels=3))
    with pytest.raises(ModelError, match="one label"):
        three.rank("bees", PASSAGES)
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "modules.json").write_text(json.dumps([{"type": "evil.Module"}]))
    with pytest.raises(ModelError, match="code of its own"):
        CrossEncoderRanker(evil).rank("bees", PASSAGES)
