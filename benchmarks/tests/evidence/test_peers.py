import numpy as np
import pytest

from benchmarks.evidence.catalogue import choose
from benchmarks.evidence.peers import (
    CrossEncoderMethod,
    LangChainEmbeddingsFilter,
    LlamaIndexSentenceOptimizer,
)
from benchmarks.evidence.signals import LongLLMLinguaRule
from ecs_plugins.errors import MissingExtraError, ModelError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.shaping.signals.base import ScoringTask
from ecs_plugins.tokens import TokenLedger

from .helpers import UNITS, finder, question, tools


def by_cosine(candidates):
    embedder = FakeEmbedder()
    asked = embedder.embed_query(candidates.question.question)
    cosines = {i: float(embedder.embed_documents([UNITS[i]])[0] @ asked) for i in candidates.pool}
    return [cosines[i] for i in sorted(cosines, key=lambda i: -cosines[i])], cosines


def test_llama_index_orders_by_the_embedders_cosine_without_its_marks():
    candidates = finder().find(question())
    order = LlamaIndexSentenceOptimizer(FakeEmbedder()).order(candidates).order
    best, cosines = by_cosine(candidates)
    assert [cosines[i] for i in order] == pytest.approx(best)
    assert sorted(order) == sorted(candidates.pool)


def test_langchain_orders_by_the_embedders_cosine():
    pytest.importorskip("langchain_community")
    candidates = finder().find(question())
    order = LangChainEmbeddingsFilter(FakeEmbedder()).order(candidates).order
    best, cosines = by_cosine(candidates)
    assert [cosines[i] for i in order] == pytest.approx(best)


def test_a_peer_that_is_not_installed_is_named_and_the_others_run(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "langchain_community", None)
    with pytest.raises(MissingExtraError):
        LangChainEmbeddingsFilter(FakeEmbedder())
    chosen = choose(("embeddings_filter", "tfidf"), tools())
    assert set(chosen.methods) == {"tfidf"}
    assert "langchain_community" in chosen.left_out["embeddings_filter"]


def test_a_directory_without_a_cross_encoder_is_refused(tmp_path):
    with pytest.raises(ModelError, match="safetensors"):
        CrossEncoderMethod(tmp_path)


def test_a_cross_encoder_of_the_users_orders_the_pool(tmp_path):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    torch.manual_seed(0)
    words = sorted({word for unit in UNITS for word in unit.lower().split()})
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", model_max_length=64,
    ).save_pretrained(tmp_path)  # fmt: skip
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=1, max_position_embeddings=64,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    candidates = finder().find(question())
    found = CrossEncoderMethod(tmp_path).order(candidates)
    assert sorted(found.order) == sorted(candidates.pool)
    assert list(found.scores) == sorted(found.scores, reverse=True)
    assert len(set(np.round(found.scores, 6))) > 1


TASK = ScoringTask("Who bought a boat?", UNITS[:3], answers=("Ana",))


def utilities(signal, model=None):
    model = model or FakeLanguageModel()
    task = signal.prepare(TASK, model, TokenLedger())
    return signal.utilities(task, model.score(signal.requests(task, model.layout)))


def test_longllmlinguas_rule_scores_question_and_statement_directly_behind_the_document():
    model = FakeLanguageModel()
    found = utilities(LongLLMLinguaRule(), model)
    (request,) = model.requests
    assert request.prefix == ()
    ((segment,),) = request.continuations
    assert segment.text == (
        "Who bought a boat? We can get the answer to this question in the given documents."
    )
    (result,) = model.score([request])
    assert [unit.utility for unit in found] == pytest.approx(
        [row[0][0].mean for row in result.scores]
    )
