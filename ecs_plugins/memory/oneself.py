"""What people say of themselves in scripts without capitals, by the wording of whole sentences.

Arabic, Chinese and Japanese write no name large, so that a place or an employer is told by the
words around it. Each pattern says of what it speaks; what stands in its place ``value`` is the
value, or the value is one of a few states.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ecs_plugins.memory.statements import Assertion

_HOME = "the speaker's home"
_PHONE = "the speaker's phone"
_WORK = "the speaker's work"
_MARRIAGE = "the speaker's marriage"

_NOW = "(?:الآن|حاليا|حالياً)"
_EVENT = "(?:رحلتي|الرحلة|الاجتماع|موعدي|الموعد|الحفلة|العشاء|اجتماعي)(?: (?:إلى|مع) [^\\s.!،]+)?"
_END = rf"(?: {_NOW})?[.!،؟]*$"

_LATELY = "(?:现在|目前|已经|已|刚刚?|最近|终于|上个?月|上周|去年|今年|一直|就|又)*"


class _Wording(NamedTuple):
    """How something is said; without a ``value``, the pattern has it."""

    key: str
    value: str
    pattern: re.Pattern[str]


def _worded(key: str, value: str, *patterns: str) -> list[_Wording]:
    return [_Wording(key, value, re.compile(pattern)) for pattern in patterns]


_WORDINGS: Final = (
    # Arabic
    *_worded(
        _HOME,
        "",
        rf"^(?:أنا )?(?:أعيش|أسكن|أقيم)(?: {_NOW})? في (?P<value>\S+(?: \S+)??){_END}",
        rf"^(?:لقد )?انتقلت(?: للعيش| للسكن)? (?:إلى|في) (?P<value>\S+(?: \S+)??){_END}",
    ),
    *_worded(
        _PHONE, "", r"^(?:رقمي|رقم هاتفي|رقم جوالي)(?: الجديد)?(?: هو)?:? (?P<value>[\d+ -]+)"
    ),
    *_worded(
        _WORK,
        "",
        rf"^(?:أنا )?أعمل(?: {_NOW})? (?:في|لدى) (?P<value>\S+(?: \S+)??){_END}",
        rf"^(?:لقد )?(?:انتقلت للعمل|بدأت العمل) (?:في|لدى|إلى) (?P<value>\S+(?: \S+)??){_END}",
    ),
    *_worded(_WORK, "nowhere", r"^(?:لقد )?(?:استقلت من|تركت العمل في|لم أعد أعمل في) \S+"),
    *_worded(_MARRIAGE, "single", rf"^(?:أنا )?(?:أعزب|عزباء|غير متزوجة?){_END}"),
    *_worded(_MARRIAGE, "married", rf"^(?:لقد )?تزوجت{_END}", rf"^أنا متزوجة?{_END}"),
    *_worded(
        _MARRIAGE,
        "divorced",
        r"^(?:لقد )?(?:طلقت زوجتي|تطلقت|انفصلت عن زوج)",
        rf"^أنا مطلقة?{_END}",
    ),
    *_worded(
        "{what} when",
        "",
        rf"^(?P<what>{_EVENT}) (?:يوم|الساعة) (?P<value>\S+?){_END}",
        rf"^تم (?:تأجيل|نقل) (?P<what>{_EVENT}) إلى (?:يوم |الساعة )?(?P<value>\S+?){_END}",
    ),
    *_worded("plan {what}", "off", rf"^(?:تم إلغاء|ألغيت|ألغي) (?P<what>{_EVENT}){_END}"),
    *_worded("plan {what}", "on", rf"^(?P<what>{_EVENT}) في "),
    # Chinese and Japanese
    *_worded(
        _HOME,
        "",
        rf"^我们?{_LATELY}(?:住在|搬到了?|搬去了?)(?P<value>[^，。！了]+)",
        r"^(?:私は|わたしは|僕は)(?P<value>[^。、はがを]+)に(?:住ん|引っ越|越し)",
    ),
    *_worded(_PHONE, "", r"^我的新?(?:电话|手机)(?:号码|号)?(?:是|：)(?P<value>[\d+ -]+)"),
    *_worded(
        _WORK,
        "",
        r"^我(?:现在)?在(?P<value>[^，。]+?)(?:工作|上班)",
        r"^我(?:跳槽到|加入)了?(?P<value>[^，。！了]+)",
    ),
    *_worded(_MARRIAGE, "single", r"^我(?:是|还|目前)?(?:单身|未婚)。?$"),
    *_worded(_MARRIAGE, "married", r"^我(?:已经|已)?(?:结婚了|婚)。?$"),
    *_worded(_MARRIAGE, "divorced", r"^我(?:已经)?离婚了。?$"),
)


def of_oneself(sentence: str) -> list[Assertion]:
    """What a sentence says of its speaker, if it is worded as one of those known."""
    if sentence.isascii():
        return []
    for wording in _WORDINGS:
        match = wording.pattern.search(sentence)
        if match is None:
            continue
        parts = match.groupdict()
        value = wording.value or parts["value"].strip()
        corrects = value != "on"
        return [Assertion(wording.key.format(**parts), value, corrects)]
    return []
