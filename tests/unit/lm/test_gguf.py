"""A tiny GGUF file, written here, must score like its converted copy."""

import json

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, TokenType
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer

from ecs_plugins.errors import ModelError
from ecs_plugins.lm.gguf import convert_gguf, read_gguf

pytestmark = pytest.mark.model

WIDTH, HEADS, KV_HEADS, INNER = 16, 4, 2, 32
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>{% endfor %}"
)


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_name("Tiny At Some Place")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*special, *sorted(ByteLevel.alphabet()), "ĠĠ"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    kinds = [TokenType.CONTROL] * len(special) + [TokenType.NORMAL] * (len(tokens) - len(special))
    writer.add_token_types(kinds)
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(0)
    narrow = WIDTH // HEADS * KV_HEADS
    shapes = {
        "token_embd.weight": (len(tokens), WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.attn_q.weight": (WIDTH, WIDTH),
        "blk.0.attn_k.weight": (narrow, WIDTH),
        "blk.0.attn_v.weight": (narrow, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def converted(tiny_gguf, tmp_path_factory):
    target = tmp_path_factory.mktemp("converted")
    convert_gguf(tiny_gguf, target)
    return target


def test_the_copy_scores_like_the_original(tiny_gguf, converted):
    model, tokenizer = read_gguf(tiny_gguf)
    ids = tokenizer("Any text, 12 or 13  words.", return_tensors="pt")["input_ids"]
    copy = AutoModelForCausalLM.from_pretrained(converted)
    with torch.inference_mode():
        wanted = model(ids).logits
        found = copy(ids).logits
    assert np.ptp(wanted.numpy()) > 0.1  # the weights matter
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-4)


def test_chat_template_and_window_survive_and_numbers_are_split_before_spaces(converted):
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.model_max_length == 128
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]


def test_no_trace_of_the_source_file_stays(tiny_gguf, converted):
    config = json.loads((converted / "config.json").read_text())
    assert "quantization_config" not in config
    for path in converted.glob("*.json"):
        assert str(tiny_gguf.parent) not in path.read_text()
        assert "Tiny At Some Place" not in path.read_text()


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_truncated_gguf_is_refused(tiny_gguf, tmp_path, size):
    (tmp_path / "cut.gguf").write_bytes(tiny_gguf.read_bytes()[:size])
    with pytest.raises(ModelError, match="cannot be read"):
        read_gguf(tmp_path / "cut.gguf")
