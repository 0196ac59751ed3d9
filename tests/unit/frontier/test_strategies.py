import os
import stat
from contextlib import closing

import pytest

from ecs_plugins.errors import ConfigurationError, ModelError
from ecs_plugins.frontier.answering import CallableAnswerModel, Completion
from ecs_plugins.frontier.building import ContextBuilder
from ecs_plugins.frontier.data import CalibrationQuestion, Context, Document
from ecs_plugins.frontier.journal import Journal
from ecs_plugins.frontier.preparations import PreparationStore
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.strategies import StrategySet, compression
from ecs_plugins.frontier.strategies.base import Prepared, prepare_all
from ecs_plugins.frontier.strategies.compression import MemoryCompression
from ecs_plugins.frontier.strategies.retrieval import FullContext, Oracle
from ecs_plugins.frontier.strategies.shaped import ShapedPassages, SharedScorer
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.tokens import Role, Stage

from .conftest import point, simple

CONTEXT = Context(
    (
        Document("The Ostrava bridge was built in 1910. It crosses a river.", "Bridges"),
        Document("Maria Nowak paints ferries. She lives in Gdynia. Her cat is old.", "Painters"),
        Document("Rye bread needs two days. The oven must be hot.", "Bread"),
    )
)


class Notes:
    """Model that writes numbered notes and records prompts."""

    name = "notes"

    def __init__(self):
        self.prompts = []

    def complete(self, prompts, *, max_new_tokens):
        self.prompts += prompts
        replies = []
        for prompt, tokens in zip(prompts, self.count_tokens(prompts), strict=True):
            note = f" note of {len(prompt)} "
            replies.append(Completion(note, tokens, 4))
        return replies

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]


@pytest.mark.parametrize("name", ["tfidf_query", "bm25"])
def test_query_aware_retrieval_finds_the_sentence_with_its_title(name):
    strategy = simple(name, depth=1)
    built = strategy.build(strategy.prepare(CONTEXT), "Who paints ferries?")
    assert built.text == "Painters: Maria Nowak paints ferries."
    assert not built.shared
    assert strategy.config == {"depth": 1}


def test_kept_sentences_stay_in_order_and_share_one_title():
    strategy = simple("bm25", depth=3)
    built = strategy.build(strategy.prepare(CONTEXT), "hot oven, Maria Nowak in Gdynia ferries")
    assert built.text == (
        "Painters: Maria Nowak paints ferries. She lives in Gdynia.\n\nBread: The oven must be hot."
    )


@pytest.mark.parametrize("strategy", [simple("tfidf", depth=2), FullContext()])
def test_what_ignores_the_question_is_shared(strategy):
    prepared = strategy.prepare(CONTEXT)
    one = strategy.build(prepared, "bread?")
    other = strategy.build(prepared, "ferries?")
    assert one.text == other.text
    assert one.shared
    assert len(one.text) <= len(CONTEXT.text)


def test_dense_retrieval_keeps_whole_documents_and_embeds_each_once():
    embedded = []

    class Remembering(FakeEmbedder):
        __call__ = None  # as modules of torch have

        def _documents(self, texts):
            embedded.extend(texts)
            return super()._documents(texts)

    own = StrategySet(embedder=Remembering())
    one = own.get("dense", {"depth": 1})
    two = own.get("dense", {"depth": 2})
    prepared = Prepared(CONTEXT)
    for question in ("bread?", "ferries?", "Rye bread two days oven"):
        short = one.build(prepared, question)
        long = two.build(prepared, question)
    assert short.text == "Bread: Rye bread needs two days. The oven must be hot."
    assert len(long.text) > len(short.text)
    texts = [document.titled for document in CONTEXT.documents]
    assert sorted(embedded) == sorted(texts)


@pytest.fixture
def cached(tmp_path):
    """A cache on disk that holds the notes of CONTEXT."""
    MemoryCompression(Notes(), 0.25, store=PreparationStore(tmp_path)).prepare(CONTEXT)
    return tmp_path


def test_compression_writes_a_context_once_books_stage_one_and_shares_its_notes():
    model = Notes()
    other = Context.of(["Another context."])
    strategy = MemoryCompression(model, 0.25)
    ready = prepare_all(strategy, [CONTEXT, other, CONTEXT])
    assert len(model.prompts) == 2
    assert [prepared.context.id for prepared in ready] == [CONTEXT.id, other.id, CONTEXT.id]
    (asked,) = (prompt for prompt in model.prompts if CONTEXT.text in prompt)
    ledger = ready[0].cost.tokens
    read = ledger.total(Stage.PREPARE, Role.COMPRESS_INPUT)
    written = ledger.total(Stage.PREPARE, Role.COMPRESS_OUTPUT)
    assert read == len(asked.split())
    assert written == 4
    built = strategy.build(ready[0], "anything")
    assert built.text == ready[0].value
    assert built.shared
    assert built.ledger.total() == 0


def test_a_cached_compression_is_not_written_again_and_reports_its_cost(cached):
    first = MemoryCompression(Notes(), 0.25).prepare(CONTEXT)
    model = Notes()
    again = MemoryCompression(model, 0.25, store=PreparationStore(cached)).prepare(CONTEXT)
    assert model.prompts == []
    assert again.value == first.value
    assert again.cost.tokens == first.cost.tokens
    assert again.cost.calls == first.cost.calls
    assert again.cost.seconds > 0


@pytest.mark.parametrize("change", ["ratio", "model", "prompt", "content", "damage"])
def test_the_cache_tells_everything_that_matters_apart_and_writes_what_is_damaged_again(
    cached, change, monkeypatch
):
    model = Notes()
    ratio = 0.25
    context = CONTEXT
    if change == "ratio":
        ratio = 0.5
    elif change == "model":
        model.name = "other"
    elif change == "prompt":
        monkeypatch.setattr(compression, "COMPRESS_PROMPT", "{documents} in {words}")
    elif change == "content":
        context = Context.of(["another text"])
    else:
        (entry,) = cached.rglob("*.json")
        entry.write_text(entry.read_text()[:20])
    strategy = MemoryCompression(model, ratio, store=PreparationStore(cached))
    strategy.prepare(context)
    assert len(model.prompts) == 1


@pytest.mark.parametrize("on_disk", [False, True])
def test_tenants_of_a_router_share_no_notes(tmp_path, on_disk):
    model = Notes()
    builder = ContextBuilder(model, cache_dir=str(tmp_path) if on_disk else None)
    asked = point("memory_compression", 0.8, 100, 10, ratio=0.25)
    for written, tenant in ((1, ("a",)), (2, ("b",)), (3, ("a", "b")), (3, ("a",)), (4, ())):
        is_new = written > len(model.prompts)
        assert builder.holds(asked, CONTEXT, tenant) == (not is_new)
        built = builder.build(asked, CONTEXT, "Who?", tenant)
        assert bool(built.cost.calls) == is_new
        assert len(model.prompts) == written


def test_long_contexts_are_compressed_piece_by_piece_in_order(monkeypatch):
    monkeypatch.setattr(compression, "_CHUNK_TOKENS", 100)
    model = Notes()
    sentences = [f"Sentence number {k} says that {k} follows {k - 1}." for k in range(40)]
    text = " ".join([*sentences, "{documents} {words}"])
    strategy = MemoryCompression(model, 0.5)
    prepared = strategy.prepare(Context.of([text]))
    assert len(model.prompts) > 2
    assert prepared.value.count("note of") == len(model.prompts)
    for sentence in sentences:
        assert sum(sentence in prompt for prompt in model.prompts) == 1


def test_a_killed_compression_keeps_the_notes_of_the_batches_before(tmp_path, monkeypatch):
    monkeypatch.setattr(compression, "_BATCH", 2)
    contexts = [Context.of([f"Context number {k}."]) for k in range(5)]

    class Killed(Notes):
        def complete(self, prompts, *, max_new_tokens):
            if len(self.prompts) >= 4:
                raise ModelError("killed")
            return super().complete(prompts, max_new_tokens=max_new_tokens)

    killed = MemoryCompression(Killed(), 0.5, store=PreparationStore(tmp_path))
    with pytest.raises(ModelError):
        killed.prepare_many(contexts)
    model = Notes()
    strategy = MemoryCompression(model, 0.5, store=PreparationStore(tmp_path))
    strategy.prepare_many(contexts)
    (asked,) = model.prompts
    assert contexts[-1].text in asked


@pytest.mark.parametrize("workers", [1, 4])
def test_a_killed_compression_by_a_remote_model_keeps_all_that_was_paid_for(tmp_path, workers):
    contexts = [Context.of([f"Context number {k}."]) for k in range(12)]
    paid = []

    def reply(prompt):
        if "number 9" in prompt:
            raise RuntimeError("killed")
        paid.append(prompt)
        return "notes", 10, 2

    def strategy(answer):
        count = Notes().count_tokens
        model = CallableAnswerModel(answer, name="remote", count_tokens=count, workers=workers)
        return MemoryCompression(model, 0.5, store=PreparationStore(tmp_path))

    with pytest.raises(ModelError, match="remote could not answer: killed"):
        strategy(reply).prepare_many(contexts)
    assert len(paid) >= 9
    asked = []
    resumed = strategy(lambda prompt: asked.append(prompt) or ("notes", 10, 2))
    resumed.prepare_many(contexts)
    assert len(asked) == len(contexts) - len(paid)


FULL = StrategySet(Notes(), embedder=FakeEmbedder(), scorer=FakeLanguageModel())


@pytest.mark.parametrize(
    ("own", "name", "config", "message"),
    [
        (StrategySet(), "dense", {"depth": 1}, "needs an embedder"),
        (StrategySet(), "ecs", {"depth": 1, "signal": "query_likelihood"}, "needs a scorer"),
        (StrategySet(), "memory_compression", {"ratio": 0.5}, "needs a model"),
        (FULL, "bm25", {"depth": 0}, "at least 1"),
        (FULL, "dense", {"depth": 0}, "at least 1"),
        (FULL, "bm25", {"depth": "4"}, "whole number"),
        (FULL, "bm25", {"breadth": 4}, "lacks a setting: 'depth'"),
        (FULL, "bm25", {"depth": 4, "breadth": 4}, r"it would be bm25\(depth=4\)"),
        (FULL, "ecs", {"depth": 1}, "lacks a setting: 'signal'"),
        (FULL, "memory_compression", {"ratio": 2.0}, "between 0 and 1"),
        (FULL, "bm52", {"depth": 4}, "known are full_context"),
    ],
)
def test_a_strategy_that_is_not_there_or_lacks_something_is_refused(own, name, config, message):
    with pytest.raises(ConfigurationError, match=message):
        own.get(name, config)


def test_ecs_keeps_the_passage_that_helps_and_books_the_scorer():
    strategy = shaped(FakeLanguageModel(), measuring=True)
    built = strategy.build(strategy.prepare(CONTEXT), "Maria Nowak paints ferries")
    assert built.text.startswith("Painters:")
    assert built.ledger.total(Stage.QUERY, Role.SCORER) > 0
    assert built.ledger.total(Stage.PREPARE) == 0


QUESTIONS = ("Who paints ferries?", "Where does Maria live?")
OTHER = Context.of(["The wheel is of oak.", "Hester Vane built the mill."])


def shaped(model, measuring, depth=1):
    scorer = SharedScorer(model, signal="query_likelihood", ranker=None, measuring=measuring)
    return ShapedPassages(scorer, depth)


def spent_on(strategy, contexts):
    """Tokens of stage 1 of each context, and of stage 2 of each question about it."""
    read = []
    asked = []
    for prepared in prepare_all(strategy, contexts):
        read.append(prepared.cost.tokens.total(Stage.PREPARE, Role.SCORER))
        tokens = []
        for question in QUESTIONS:
            built = strategy.build(prepared, question)
            tokens.append(built.ledger.total(Stage.QUERY, Role.SCORER))
        asked.append(tokens)
    return read, asked


def test_ecs_reads_a_context_once_and_measures_both_stages_as_if_alone(tiny_lm):
    model = tiny_lm()
    alone = shaped(model, measuring=True)
    (read,), (asked,) = spent_on(alone, [CONTEXT])
    assert read > 2 * max(asked) > 0
    # Neither what another depth or context left in the model's cache changes a figure.
    deeper = shaped(model, measuring=True, depth=2)
    again_read, again_asked = spent_on(deeper, [CONTEXT, OTHER, CONTEXT])
    for place in (0, 2):
        assert again_read[place] == read
        assert again_asked[place] == asked
    whole = shaped(tiny_lm(), measuring=False)
    built = whole.build(Prepared(CONTEXT), QUESTIONS[0])
    both = read + asked[0]
    assert 0.9 * both <= built.ledger.total() <= both


def test_what_the_model_still_knows_is_not_paid_again_in_deployment(tiny_lm):
    strategy = shaped(tiny_lm(), measuring=False)
    (first,), (asked,) = spent_on(strategy, [CONTEXT])
    (again,), (repeated,) = spent_on(strategy, [CONTEXT])
    assert first > 0
    assert again == 0
    dearest = max(asked)
    assert max(repeated) <= dearest


def test_the_oracle_keeps_the_supporting_documents_and_is_not_routable():
    question = CalibrationQuestion("q", "Where does Maria live?", ("Gdynia",), CONTEXT, (1,))
    oracle = Oracle([question])
    assert not oracle.routable
    built = oracle.build(oracle.prepare(CONTEXT), question.question)
    assert built.text == CONTEXT.documents[1].titled
    assert oracle.build(oracle.prepare(CONTEXT), "unknown").text == CONTEXT.text


# Files with text of users.


def journal(folder):
    with closing(Journal(folder / "journal.db", ("kind", 1), {"a": 1})) as made:
        made.append({"kind": "x"})


def ledger(folder):
    with ReuseLedger(folder / "reuse.db") as made:
        made.count_query("What a user said.")


def notes_in(folder):
    MemoryCompression(Notes(), 0.25, store=PreparationStore(folder)).prepare(CONTEXT)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
@pytest.mark.parametrize("write", [journal, ledger, notes_in])
def test_files_with_text_of_users_are_private(tmp_path, write):
    before = os.umask(0o022)
    try:
        write(tmp_path)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files}
    assert modes == {0o600}
