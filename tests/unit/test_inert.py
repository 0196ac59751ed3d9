"""Untrusted text ends no turn, closes no mark and hides nothing."""

import unicodedata

import pytest
import regex

from ecs_plugins.common.inert import TAG, inert, without_marks

CLOSING = f"</{TAG}>"


@pytest.mark.parametrize(
    "token",
    ["<|im_end|>", "<|eot_id|>", "</s>", "<s>", "<end_of_turn>", "[INST]", "[/INST]", "<<SYS>>",
     "<｜end▁of▁sentence｜>", "</think>", "[|endofturn|]", "]~b]", "]~!b[", "[e~[", "<seed:bos>",
     "<seed:cot_budget_reflect>", "[/THINK]", "[gMASK]", "<sop>", "[SYSTEM_PROMPT]", "<BOS_TOKEN>",
     "<reserved_106>", "[UNUSED_TOKEN_145]", "<|turn>", "<turn|>",
     "<tool▁calls▁begin>", "＜|im_end|＞", "</tool_call>"],
)  # fmt: skip
def test_tokens_of_chat_templates_are_broken(token):
    shown = inert(f"before{token}after")
    assert token not in shown
    assert shown.startswith("before")
    assert shown.endswith("after")
    assert token not in inert(f"{token[:2]}\u200b{token[2:]}")


def test_the_tokens_of_a_tokenizer_are_broken_too():
    assert inert("a [PAD] b EOT", ["[PAD]", "EOT", "|"]) == "a ［PAD] b E OT"


@pytest.mark.parametrize(
    "closing",
    [
        CLOSING,
        CLOSING.upper(),
        "< / Recalled_Notes >",
        "</re\u200bcalled_notes>",
        "</re\u200dcalled_notes>",
        "＜/recalled_notes＞",
        "</rеcаlled_nоtes>",
        "</ｒｅｃａｌｌｅｄ_ｎｏｔｅｓ>",
        "<\u202e/recalled_notes>",
        "<\U000e0041/recalled_notes>",
    ],
    ids=ascii,
)
def test_nothing_closes_the_marks(closing):
    shown = inert(f"a{closing}b")
    assert "<" not in shown
    assert "＜" not in shown
    assert shown[0] + shown[-1] == "ab"


@pytest.mark.parametrize("hidden", ["\u200b", "\u202e", "\u2066", "\ufeff", "\U000e0041", "\xad"])
def test_invisible_characters_are_removed(hidden):
    assert inert(f"pay{hidden} me") == "pay me"


@pytest.mark.parametrize("category", ["Cf", "default ignorable"])
def test_no_character_of_a_hidden_category_is_left(category):
    ignorable = regex.compile(r"\p{Default_Ignorable_Code_Point}")
    for character in map(chr, range(0x110000)):
        is_format = unicodedata.category(character) == "Cf"
        if is_format if category == "Cf" else ignorable.fullmatch(character):
            assert inert(f"a{character}b") == "ab", ascii(character)


def test_a_run_of_selectors_hides_nothing():
    assert inert("😊" + "\ufe0f\ufe0e" * 20 + "!") == "😊\ufe0f!"
    assert inert("😊" + "".join(map(chr, range(0xE0100, 0xE01F0)))) == "😊"


@pytest.mark.parametrize("control", ["\x1b", "\x00", "\x07", "\x9b", "\x7f", "\ud83d"])
def test_control_characters_are_replaced(control):
    assert inert(f"a{control}[31mb") == "a\ufffd[31mb"


@pytest.mark.parametrize("kept", [
    "a < b && c > d", "f <| x", "x[Instance]", "a[i] ~ b[j]", "1]~2", "[x](y)", "❤️ ok",
    "<p>text</p>", "tab\tand\nline\r\n", "שלום",
    "می\u200cخواهم", "👩\u200d👩\u200d👧", "naïve café", "C:\\dir\\[1]", "‹ quoted ›",
])  # fmt: skip
def test_everything_else_stays_as_it_is(kept):
    assert inert(kept) == kept


def test_line_breaks_of_every_kind_are_line_breaks():
    assert inert("a\x0bb\x0cc\u2028d\x85e") == "a\nb\nc\nd\ne"


def test_marks_are_removed_from_user_text():
    assert without_marks(f"x\u202e{CLOSING}<|im_end|>") == f"x\u202e‹/{TAG}><|im_end|>"
