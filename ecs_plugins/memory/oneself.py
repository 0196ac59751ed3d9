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
_PARTNER = "the speaker's partner"
_DIET = "whether the speaker eats meat"
_EVENTS_ZH = (
    "(?P<what>会议|开会|聚会|聚餐|演出|考试|课程|比赛|旅行|航班|晚饭|晚餐|午饭|面试|约会"
    "|手术|婚礼|课|牙医预约|看牙|和[^，。是在改]{1,6}的[^，。是在改]{2,4})"
)

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
    *_worded(
        _HOME,
        "",
        r"^我们?(?:现在|目前)(?:住|生活)在(?P<value>[^，。！了]+)",
        r"^我们?搬家?到了?(?P<value>[^，。！了]+)",
    ),
    *_worded(
        _PHONE,
        "",
        r"(?:换号码?了?|号码换了|新的?(?:手机|电话)?号码?)[，,]?(?:我的)?(?:新的?)?(?:手机|电话)?号?码?"
        r"(?:现在)?(?:是|：)?(?P<value>\d[\d -]+)",
        r"^我的(?:手机|电话)号?码?(?:现在)?(?:是|改成了?|换成了?)(?P<value>\d[\d -]+)",
    ),
    *_worded(
        _WORK,
        "",
        r"^我(?:上[周月]|昨天|今天)?(?:换工作了[，,])?(?:现在)?(?:开始)?(?:在|去)(?P<value>[^，。]+?)(?:工作|上班|任职)了?",
        r"^我(?:入职|去)了(?P<value>[^，。！了]+)",
    ),
    *_worded(_WORK, "nowhere", r"^我(?:已经|刚)?(?:从[^，。]+)?(?:辞职|离职|被裁|失业|退休)了?"),
    *_worded(
        _PARTNER, "", r"^我(?:的)?(?:女朋友|男朋友|女友|男友|对象)(?:叫|是)(?P<value>[^，。！]+)"
    ),
    *_worded(_PARTNER, "nobody", r"^我(?:和|跟)[^，。]{1,8}分手了?", r"^我(?:现在)?(?:又)?单身了"),
    *_worded(
        _DIET,
        "no",
        r"^我(?:是|现在是)?(?:素食者|素食主义者|吃素)",
        r"^我(?:现在|再也|已经)?不吃肉了?",
    ),
    *_worded(
        _DIET,
        "yes",
        r"^我(?:现在)?(?:又|重新|开始|又开始)+吃肉了?",
        r"^我(?:已经)?不(?:再)?(?:是素食|吃素)",
    ),
    *_worded(
        "{what} when",
        "",
        rf"^(?:我的?|我们的?)?{_EVENTS_ZH}(?:时间)?(?:是|定在|在)(?P<value>[^，。！了]+?)。?$",
        rf"^(?:我的?|我们的?)?{_EVENTS_ZH}(?:时间)?(?:被)?(?:改|推迟|延期|提前|挪)(?:到|至)了?(?P<value>[^，。！了]+)",
    ),
    *_worded("{what} when", "off", rf"^(?:我的?|我们的?)?{_EVENTS_ZH}(?:被)?取消了?"),
    *_worded(
        "the speaker's {what}",
        "",
        r"^我们?的?新?(?P<what>经理|老板|上司|医生|牙医|房东|邮箱|密码|地址|车|电脑|名字|老师|教练|室友|办公室|最喜欢的[^是，。]{1,4})"
        r"(?:现在)?(?:是|叫|改成了?|换成了?)(?P<value>[^，。！]+)",
    ),
    *_worded("the speaker: allergy {what}", "yes", r"^我对(?P<what>[^，。不]+)过敏"),
    *_worded(
        "the speaker: allergy {what}",
        "no",
        r"^我(?:现在)?对(?P<what>[^，。不]+)(?:已经)?不(?:再)?过敏",
    ),
    *_worded(
        "the speaker: {what}",
        "no",
        r"^我(?:已经)?(?:不再|不|再也不)(?P<what>抽烟|喝酒|喝咖啡|开车|跑步|健身|打球|上班|上学)了",
    ),
    *_worded("the speaker: 抽烟", "no", r"^我(?:已经)?戒烟了"),
    *_worded("the speaker: 喝酒", "no", r"^我(?:已经)?戒酒了"),
    *_worded(
        "the speaker: {what}",
        "yes",
        r"^我(?:现在|每天|又|又开始)*(?P<what>抽烟|喝酒|喝咖啡|开车|跑步|健身|打球)了?。?$",
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
