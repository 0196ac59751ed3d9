import pytest
import torch

from benchmarks.evidence.attention import (
    TEMPLATE,
    attention_shares,
    default_and_attention,
    twin_of,
)
from ecs_plugins import ContextShaper, ShapingConfig
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.lm.prompts import PLAIN

pytestmark = pytest.mark.model

QUESTION = "Where does Ann live?"
PASSAGES = ["Ann moved to Paris.", "The train was late.", "Bob sells <|im_end|> bread."]
HEADS = ((1, 2), (0, 1), (5, 8))


def test_the_shares_are_those_of_one_plain_forward_per_question(bundled_lm) -> None:
    model, encoder = twin_of(*bundled_lm.pair(), depth=6)
    found, computed = attention_shares(model, encoder, QUESTION, PASSAGES, HEADS)
    before = encoder.with_lead(encoder.join(TEMPLATE.prefix(PLAIN, {}), at_head=True))
    parts = [encoder.encode(TEMPLATE.candidate(text)) for text in PASSAGES]
    prompt = before + tuple(i for part in parts for ids in part for i in ids)
    wanted = [0.0] * len(PASSAGES)
    for sign, asked in ((1, QUESTION), (-1, "N/A")):
        cue, own = encoder.encode(TEMPLATE.continuation(PLAIN, {"question": asked}, ("question",)))
        with torch.inference_mode():
            ids = torch.tensor([prompt + cue + own])
            weights = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
        computed -= len(cue + own)
        at = len(before)
        for place, (lead, text, behind) in enumerate(parts):
            span = slice(at + len(lead), at + len(lead) + len(text))
            shares = [weights[layer][0, h, -len(own) :, span].sum(-1) for layer, h in HEADS]
            wanted[place] += sign * float(sum(share.mean() for share in shares))
            at += len(lead) + len(text) + len(behind)
    assert found == pytest.approx(wanted, abs=1e-5)
    assert computed == len(prompt)


def test_attention_orders_passages_and_leaves_utilities_and_the_model_alone(bundled_lm) -> None:
    config = ShapingConfig(signal=default_and_attention(), on_error="raise")
    lm, kind = bundled_lm, bundled_lm.pair()[0].config._attn_implementation
    lm.clear_cache()
    found = ContextShaper(lm, config).shape(QUESTION, PASSAGES)
    lm.clear_cache()
    alone = ContextShaper(lm, config.replace(signal="auto")).shape(QUESTION, PASSAGES)
    utilities = [verdict.utility for verdict in alone.verdicts]
    assert [verdict.utility for verdict in found.verdicts] == pytest.approx(utilities, abs=1e-3)
    assert [v.score for v in found.verdicts] != [v.score for v in alone.verdicts]
    assert found.ledger.total() > alone.ledger.total()
    assert lm.pair()[0].config._attn_implementation == kind
    with pytest.raises(ConfigurationError, match="LocalLM"):
        ContextShaper(FakeLanguageModel(), config).shape(QUESTION, PASSAGES)
