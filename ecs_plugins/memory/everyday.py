"""Everyday wordings, and the plain form in which the rules of correction know them.

"They changed the code to 4712" becomes "the code is now 4712", and "I quit my job at Siemens" is "I
no longer work at Siemens". English first, then what other languages say of homes, work, marriages
and days that are moved.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

CHANGING = (
    "moved|relocated|rescheduled|postponed|pushed|changed|upgraded|switched|migrated|updated|raised"
    "|lowered|cut|extended|increased|reduced|dropped|reset|rose|went up|went down"
)
"""Verbs of what gets another value."""

_PUT_OFF = "postponed|rescheduled|rebooked|moved|pushed|shifted|delayed|brought forward"
_SET = "changed|updated|renamed|reset|switched|raised|lowered|cut|increased|reduced|extended"
_DONE = "shipped|delivered|returned|approved|rejected|sold|fixed|repaired|closed"
_HABITS = "go to bed|get up|wake up|start work|finish work|have lunch|have dinner"
_HAVE_NEW = "(?:just |have |now )*(?:got|have) an? new"
_THINGS = "laptop|computer|phone|car|bike|tablet|camera|printer|motorbike|scooter"
_RUSSIAN: Final = (
    (r"^ (?:our )?(?=мо[йяё] |наш)", " "),  # behind a label
    (r"^ мы (?=переехали |развелись |поженились )", " я "),
    (r"^ our у меня нов(?:ый|ая|ое) (?P<what>\D+?) is ", r" мой \g<what> is now "),
    (r" номер телефона | телефон(?= (?:is )?\d)", " номер "),
    (r"^ (?:я )?(?:сменила?|поменяла?) (?:мой )?номер на (?=\d)", " мой номер is now "),
    (r"^ (?P<what>мой (?:\w+ ){0,2}номер) (?=\d)", r" \g<what> is "),
    (r" (?:живу|живём|живем|живёт|живет) в ", " lives in "),
    (r" переехал[аи]? в ", " moved to "),
    (r" работа(?:ю|ет) в ", " works at "),
    (r" (?:устроил(?:ся|ась)|переш(?:ёл|ел|ла)) (?:на работу )?в ", " now works at "),
    (r" (?:уволил(?:ся|ась)) из ", " no longer works at "),
    (r"^ я (?:холост|не женат|не замужем) ", " я is single "),
    (r"^ я (?:женился|вышла замуж|женат|замужем|поженились) ", " я is married "),
    (r"^ я (?:разв[её]лся|развелась|развелись|в разводе) ", " я is divorced "),
    (r"^ я бросила? курить ", " я больше не курю "),
    (r" (?:отменен[аоы]?|отмен[её]н[аоы]?|отменили|не состоится) ", " is off "),
    (r" перенес(?:ен[аоы]?|ён|ли) на ", " moved to "),
    (
        r"^ (?P<what>(?:встреча|приём|прием|ужин|обед|концерт)(?: с \w+)?) в (?=\d)",
        r" \g<what> is ",
    ),
)
_ARABIC: Final = (
    (r"^ لم أعد (\w+?)ا? $", r" أنا no longer \1 "),
    (r"^ (?=لا [أآ])", " أنا "),
    (r"^ أصبحت ", " أنا الآن "),
    (r"^ (أ\w+) $", r" أنا \1 "),
)


class _EverydayWording(NamedTuple):
    """An everyday wording and its plain form.

    Attributes:
        signs: Words one of which a sentence has that is worded so; the others are not looked at.
        pattern: The wording.
        plain: What takes its place.
    """

    signs: frozenset[str]
    pattern: re.Pattern[str]
    plain: str


def _worded(signs: str, pattern: str, plain: str) -> _EverydayWording:
    return _EverydayWording(frozenset(re.findall(r"\w+", signs)), re.compile(pattern), plain)


_EVERYDAY: Final = (
    # Who found out is no part of what is so.
    _worded(
        "test tests doctor result results vet",
        r" (?:the|my) (?:test|tests|doctor|results?|vet) (?:says?|said|shows?|showed)(?: that)? ",
        " ",
    ),
    _worded("out", r" (?:it )?(?:turns|turned) out(?: that)? ", " "),
    # When it ended says nothing of what did.
    _worded(
        "quit resigned fired laid sacked left",
        r"(?P<what> (?:quit|resigned|fired|laid|sacked|left) .*) "
        r"(?:last \w+|yesterday|today|this \w+) $",
        r"\g<what> ",
    ),
    # What it is not is what it was.
    _worded("not", r" (?P<what>is (?:\w+ )?\S+) not (?:\w+ )?\S+ $", r" \g<what> now "),
    # Somebody changed it.
    _worded(
        _SET,
        rf" (?:they|we|i|someone|he|she|the \w+) (?:have |has |just )*(?:{_SET}) "
        r"(?P<what>(?:the|my|our) \S+(?: \S+){0,5}?) to ",
        r" \g<what> is now ",
    ),
    _worded(
        "change",
        r"^ change (?P<what>(?:the|my|our) \S+(?: \S+){0,3}?) to ",
        r" \g<what> is now ",
    ),
    # What one has one of
    _worded(
        _THINGS,
        rf"^ my (?P<what>new |)(?P<thing>{_THINGS}) is an? ",
        r" my \g<what>\g<thing> is ",
    ),
    _worded("drive own ride", r"^ i (?:drive|own|ride) an? ", " i have a "),
    _worded(
        "traded swapped exchanged sold",
        r"^ (?:i|we) (?:have |just )*(?:traded|swapped|exchanged|sold) (?:in )?my (?P<old>\w+) "
        r"(?:(?:for|and) .* )?$",
        r" i no longer have a \g<old> ",
    ),
    _worded(
        "size",
        r"^ i (?:am|wear|take)(?: a| now)? size (?=\w+ (?:now )?$)",
        " my size is ",
    ),
    _worded(
        "plan",
        r"^ (?:i|we) (?:am|are) on (?:the|an?) (?P<plan>\w+) plan ",
        r" my tier is \g<plan> ",
    ),
    _worded(
        "plan",
        r"^ (?:i|we) (?:have |just )*(?:up|down)graded to (?:the|an?) (?P<plan>\w+) plan ",
        r" my tier is now \g<plan> ",
    ),
    _worded(
        "number",
        r" my (?P<new>new )?number (?=is (?:now )?\+?\d[\d-]{4})",
        r" my \g<new>phone number ",
    ),
    _worded(
        "reach call text",
        r"^ you can (?:reach|call|text) me (?:at|on|under) (?P<value>\S*\d\S*) "
        r"(?:from now on|now|instead) $",
        r" my phone number is now \g<value> ",
    ),
    _worded(_HABITS, rf"^ i (?P<what>{_HABITS}) at (?=\d)", r" my \g<what> hour is "),
    _worded(_DONE, rf" (?:has|have) been (?={_DONE} )", " is "),
    # Somebody put it off.
    _worded(
        _PUT_OFF,
        r" (?:they|we|i|someone|he|she|the \w+) (?:have |has |had |just |to )*"
        rf"(?:{_PUT_OFF}) (?P<what>(?:the|my|our) \S+(?: \S+){{0,3}}?) "
        r"(?:back |forward |out )?to (?!\w+ to \d)",
        r" \g<what> moved to ",
    ),
    # There is a new one.
    _worded(
        "new",
        rf"^ our (?:i|we) {_HAVE_NEW} (?P<what>\S+(?: \S+){{0,2}}?) is ",
        r" my \g<what> is now ",
    ),
    _worded(
        "new",
        rf"^ (?:i|we) {_HAVE_NEW} (?P<what>\w+(?: (?:number|address|code))?) (?=\S*[\d@])",
        r" my \g<what> is now ",
    ),
    _worded(
        "use",
        r"^ use (?P<value>\S+(?: \S+){0,2}?) as (?P<what>(?:my|our|the) \S+(?: \S+)?) "
        r"(?:from now on |instead |now )*$",
        r" \g<what> is now \g<value> ",
    ),
    _worded(CHANGING, rf" (?P<verb>{CHANGING}) from \S+(?: \S+){{0,2}}? to ", r" \g<verb> to "),
    # Health
    _worded(
        "allergy",
        r" (?:outgrew|got over|lost) (?:my|the) (\w+) allergy ",
        r" am not allergic to \1 ",
    ),
    _worded("allergy", r" (?:have|has) an? (\w+) allergy ", r" am allergic to \1 "),
    _worded(
        "allergy",
        r"^ (?:my|the) (\w+) allergy (?:is|has) (?:gone|disappeared|cleared up) ",
        r" i am not allergic to \1 ",
    ),
    _worded("being", r" (?:stopped|quit) being ", " am no longer "),
    # Habits
    _worded(
        "started began took", r" (?:have |has )?(?:started|began|took up) (?=\w+ing )", " now "
    ),
    # Marriage
    _worded(
        "divorced separated married engaged",
        r"^ \w+ and i (?:have |are |were |got )*(?=(?:divorced|separated|married|engaged) )",
        " i am ",
    ),
    _worded(
        "up",
        r"^ \w+ and i (?:have |are |were |got )*(?:split up|broke up) ",
        " i am separated ",
    ),
    _worded("got", r" got (?=divorced |separated |married |engaged )", " am "),
    # Work
    _worded(
        "quit resigned retired laid let fired sacked dismissed notice",
        r" (?:quit my job at|(?:handed in|gave) my notice at|resigned from|retired from"
        r"|(?:was |got )?(?:laid off|let go|fired|sacked|dismissed) (?:from|by)) ",
        " no longer work at ",
    ),
    _worded(
        "hired employed switched",
        r" (?:(?:was|got) (?:hired|employed) (?:by|at)|switched to a job at) ",
        " work at ",
    ),
    _worded("left", r"^ i (?:have |just )*left (?=\w+ $)", " i no longer work at "),
    # Homes
    _worded(
        "moved",
        r" moved into (?:a|an|my|our|the) (?:new )?(?:place|flat|apartment|home|house) in ",
        " moved to ",
    ),
    _worded("settled", r"^ (?P<who>i|we) (?:have )?settled (?:down )?in ", r" \g<who> moved to "),
    _worded(
        "place flat apartment home house",
        r"^ my new (?:place|flat|apartment|home|house) is in ",
        " i moved to ",
    ),
    # Names
    _worded("call", r"^ call me ", " my call name is "),
    # Homes in other languages
    _worded("bin", r" bin (?:\w+ ){0,2}nach (\w+) (?:um)?gezogen ", r" moved to \1 "),
    _worded("ai", r" ai déménagé à ", " moved to "),
    _worded("mi", r" mi sono trasferit[oa] a ", " io live "),
    _worded("abito vivo", r" (?:abito|vivo) a ", " io live "),
    _worded(
        "ich",
        r"^ ich (?:habe geheiratet|bin (?:jetzt )?verheiratet) ",
        " ich is married ",
    ),
    _worded(
        "ich",
        r"^ ich (?:bin (?:jetzt )?geschieden|habe mich scheiden lassen) ",
        " ich is divorced ",
    ),
    _worded("ich", r"^ ich bin (?:single|ledig) ", " ich is single "),
    _worded("célibataire", r"^ je suis célibataire ", " je is single "),
    _worded("marié mariée", r"^ je (?:me )?suis mariée? ", " je is married "),
    _worded("divorcé divorcée", r"^ (?:je suis|j ai) divorcée? ", " je is divorced "),
    _worded("soltero soltera", r"^ (?:yo )?(?:estoy|soy) solter[oa] ", " yo is single "),
    _worded("casé casado casada", r"^ (?:yo )?(?:me casé|estoy casad[oa]) ", " yo is married "),
    _worded(
        "divorcié divorciado divorciada",
        r"^ (?:yo )?(?:me divorcié|estoy divorciad[oa]) ",
        " yo is divorced ",
    ),
    _worded("single", r"^ (?:io )?sono single ", " io is single "),
    _worded("sposato sposata", r"^ (?:io )?(?:mi )?sono sposat[oa] ", " io is married "),
    _worded("divorziato divorziata", r"^ (?:io )?(?:ho|sono) divorziat[oa] ", " io is divorced "),
    # Work and days in other languages
    _worded("ist", r" ist am (?=\w+(?:tag|woch|abend) |\d)", " ist "),
    _worded("trabajo", r" (?:yo )?trabajo en ", " yo works at "),
    _worded("lavoro", r" (?:io )?lavoro (?:alla|al|allo|all|per|presso) ", " io works at "),
    _worded(
        "verschoben verlegt",
        r" (?:wurde|ist|wird) auf (?:den )?(?P<when>\S+(?: \S+)?) (?:verschoben|verlegt) ",
        r" moved to \g<when> ",
    ),
    _worded(
        "reporté reportée déplacé déplacée",
        r" (?:est|a été) (?:reportée?|déplacée?) (?:à|au) ",
        " moved to ",
    ),
    _worded(
        "movió aplazó pospuso cambió",
        r" se (?:movió|aplazó|pospuso|cambió) (?:al?|para el) ",
        " moved to ",
    ),
    _worded(
        "spostato spostata rinviato rinviata",
        r" è stat[oa] (?:spostat|rinviat)[oa] a ",
        " moved to ",
    ),
)
_EVERYDAY_IN_OTHER_SCRIPTS: Final = tuple(
    (re.compile(pattern), plain) for pattern, plain in (*_RUSSIAN, *_ARABIC)
)


def reworded(text: str) -> str:
    """A text with everyday wordings in their plain form.

    Args:
        text: Words in small letters, each with a space before and behind it.
    """
    words = {*text.split()}
    for wording in _EVERYDAY:
        if not wording.signs.isdisjoint(words):
            text = wording.pattern.sub(wording.plain, text)
            words.update(text.split())
    if not text.isascii():
        for pattern, plain in _EVERYDAY_IN_OTHER_SCRIPTS:
            text = pattern.sub(plain, text)
    return text
