"""Attributes that have one value at a time, by the wordings in which people tell of them.

A dose, an age, a diet, where a thing is kept, who leads a team, in which language to answer: each
is told in many ways ("I take 50 mg of X", "my doctor raised my X to 100 mg"), which share no
subject and no verb. What a wording says is a value of one attribute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ecs_plugins.memory.kinds import DIETS, KINDS, LANGUAGES, OCCUPATIONS, TIERS
from ecs_plugins.memory.rewording import SignIndex
from ecs_plugins.memory.statements import Assertion
from ecs_plugins.memory.wording import IN_WORDS, word_list

_SCHOOL: Final = (
    r"(?:school|primary|academy|high|college|university|elementary|kindergarten|preschool|nursery)"
)
_OFFICES: Final = (
    r"(?:captain|treasurer|president|chair|secretary|leader|owner|admin|maintainer|host"
    r"|organi[sz]er"
    r"|goalkeeper|moderator|editor|chief|head|coordinator|contact|winner|mayor|principal)"
)
_GROUP: Final = r"(?:team|department|division|squad|group|unit|class)"
_VALUE: Final = r"(?P<value>\S*\d\S*|\w+)"
_LATELY: Final = r"(?: (?:have|has|had|just|finally|already|recently|now|currently|officially))*"
_NOW: Final = (
    r"(?: (?:now|again|today|yesterday|this \w+|last \w+|instead|these days|on \w+|at the moment))*"
)
_RAISED: Final = (
    r"(?:raised|increased|upped|lowered|reduced|cut|changed|doubled|bumped|adjusted|dropped|set"
    r"|halved|switched|went up|went down|tapered)"
)
_WHO: Final = r"(?P<what>(?:my|our) \w+|\w+)"
_PLACE: Final = (
    r"(?P<value>(?:in|on|under|at|behind|inside|above|below|beside|next to|near|by|with) "
    r"(?:\w+ ){0,4}?\w+)"
)


class _Attribute(NamedTuple):
    """A wording that tells a value of an attribute.

    Attributes:
        signs: Words one of which a clause has that is worded so; the others are not looked at.
        key: The attribute, with the part ``what`` or ``who`` of the pattern in its place.
        value: Its value; empty where the pattern has it as ``value``.
        pattern: The wording.
        corrects: Whether what was said before falls.
    """

    signs: frozenset[str]
    key: str
    value: str
    pattern: re.Pattern[str]
    corrects: bool = True


_PRODUCTS: Final = frozenset(
    word.split()[0] for products in KINDS.values() for word in products.split("|")
)
_KEPT: Final = "kept {what}"
_SIGNS: Final = {
    "dose": word_list(
        """mg milligrams milligram mcg units tablets pills drops ml dose dosage take taking raised
        increased upped lowered reduced cut changed doubled bumped adjusted dropped set halved
        switched tapered"""
    ),
    "age": word_list("turned years is"),
    "school year": word_list("grade year class form"),
    "leads": word_list(
        "leads runs heads manages chairs owns charge responsible leading running over taking led "
        "run"
    )
    | word_list("headed managed chaired"),
    "kept": word_list("is are keep moved put placed hid stored relocated transferred"),
    "tier": frozenset(TIERS.split("|")),
    "answers are": word_list("answers replies responses explanations it"),
    "units": word_list("metric imperial celsius fahrenheit"),
    "away": word_list("leave holiday holidays vacation sabbatical break back"),
    "hospital": word_list("hospital home discharged released"),
    "lodging": word_list("live lives living stays staying share moved"),
    "school": word_list(
        """school primary academy high college university elementary kindergarten preschool nursery
        goes attends attend switched moved changed transferred starts started starting"""
    ),
    "name of": word_list("called named renamed"),
    "office": word_list("the as"),
    "meeting place": word_list("meet meeting"),
    "expecting": word_list("pregnant expecting birth baby son daughter twins"),
    "fond": word_list("like love enjoy adore hate dislike stand"),
    "team of": word_list("team department division squad group unit class"),
    "answer in": frozenset(LANGUAGES.split("|")),
    "occupation": frozenset(OCCUPATIONS.replace("|", " ").split()),
    "consumes": word_list(
        """vegan vegetarian veggie plant meat fish chicken beef pork steak bacon sausage sausages
        ham
        turkey lamb burgers fleisch fisch végétarien végétarienne végan végane viande poisson carne
        vegetariano vegetariana vegano vegana pescado alcohol wine beer whisky whiskey vodka gin
        cocktails sober teetotal alkohol wein bier alcool alcol drink drinking bois beber bevo
        vegetarier vegetarierin vegetarisch veganer veganerin"""
    ),
}
"""Words one of which tells of each attribute."""


def _told(key: str, *patterns: str, value: str = "", corrects: bool = True) -> list[_Attribute]:
    name = key.partition(" {")[0]
    signs = _SIGNS[name.rpartition(":")[0] or name]
    return [_Attribute(signs, key, value, re.compile(each), corrects) for each in patterns]


_ATTRIBUTES: Final = (
    *_told(
        "dose {what}",
        rf"^ i{_LATELY} (?:take|am taking|am on) {_VALUE} ?(?:mg|milligrams?|mcg|units|tablets"
        r"|pills"
        rf"|drops|ml)? (?:of )?(?P<what>[a-z]{{4,}})"
        rf"(?: (?:daily|a day|per day|every \w+))?{_NOW} $",
        rf" {_RAISED} my (?P<what>\w+)(?: dose| dosage)? (?:from \S+(?: mg)? )?to {_VALUE}",
        r" (?:dose|dosage) of (?:my )?(?P<what>\w+) (?:is|went up to|went down to|was \w+ to) "
        r"(?:now )?(?P<value>\d\S*)",
        rf"^ my (?P<what>\w+)(?: dose| dosage)? (?:is|was|has been|{_RAISED}|been)+ "
        rf"(?:{_RAISED} )?(?:now )?(?:to )?(?P<value>\d\S*) (?:mg|milligrams?|mcg|units|ml)\b",
    ),
    *_told(
        "age {what}",
        rf"^ {_WHO}(?: \w+)?{_LATELY} turned {_VALUE}{_NOW} $",
        rf"^ (?:my \w+ )?(?P<what>\w+) is{_LATELY} {_VALUE} years old{_NOW} $",
        rf"^ (?P<what>my \w+) is{_LATELY} {_VALUE} years old{_NOW} $",
    ),
    *_told("age {what}", r"^ (?P<what>my \w+|\w+) is (?P<value>\d+) $", corrects=False),
    *_told(
        "school year {what}",
        rf"^ {_WHO} (?:(?:is|am) in|(?:just |is )*(?:started|starts|starting|entered|moved up to)) "
        rf"(?:the )?(?P<value>\w+) (?:grade|year|class|form){_NOW} $",
        rf"^ {_WHO} (?:(?:is|am) in|(?:just |is )*(?:started|starts|starting|entered|moved up to)) "
        rf"(?:the )?(?:grade|year|class|form) (?P<value>\w+){_NOW} $",
    ),
    *_told(
        "leads {what}",
        r"^ (?:our |my )?(?P<value>\w+(?: \w+)?)(?: (?:now|currently))? (?:leads|runs|heads|manages"
        r"|chairs|owns|is in charge of|is responsible for|is leading|is running|took over|takes "
        r"over"
        r"|has taken over|is taking over) (?:the |our )?(?P<what>\w+(?: \w+)??)"
        r"(?: (?:from|for|after|as) .*| now)? $",
        r"^ (?:the |our )?(?P<what>\w+(?: \w+)??) is (?:now )?(?:led|run|headed|managed|chaired) "
        r"by "
        r"(?P<value>\w+(?: \w+)?)(?: now)? $",
    ),
    *_told(
        "kept {what}",
        rf"^ (?:the |my |our )?(?P<what>[a-z]+(?: [a-z]+){{0,2}}?) (?:is|are){_LATELY} (?:kept )?"
        rf"{_PLACE} $",
        rf"^ (?:i|we){_LATELY} keep (?:the |my |our )?(?P<what>[a-z]+(?: [a-z]+)?) {_PLACE} $",
        corrects=False,
    ),
    *_told(
        "kept {what}",
        rf"^ (?:i|we|\w+){_LATELY} (?:moved|put|placed|hid|stored|relocated|transferred) "
        r"(?:the |my |our )(?P<what>[a-z]+(?: [a-z]+)??) (?:back )?"
        rf"(?P<value>(?:to|into|in|on|under|behind) (?:\w+ ){{0,4}}?\w+?){_NOW} $",
        r"^ (?:the |my |our )?(?P<what>[a-z]+(?: [a-z]+){0,2}?) (?:(?:is|are) now"
        r"|(?:was|were|has been|have been|got) (?:moved|relocated|transferred)) (?P<value>(?:to"
        r"|into|in|on|under|at|behind) (?:\w+ ){0,4}?\w+) $",
        rf"^ (?:the |my |our )?(?P<what>[a-z]+(?: [a-z]+){{0,2}}?) (?:is|are) {_PLACE} now $",
        rf"^ (?:i|we){_LATELY} keep (?:the |my |our )?(?P<what>[a-z]+(?: [a-z]+)?) {_PLACE} now $",
    ),
    *_told(
        "tier {what}",
        rf"^ (?:i|we) (?:am|are|have|use|pay for)(?: on| the| an?)* (?P<value>{TIERS})"
        r"(?: plan| tier| version| subscription| account| edition)? (?:of|for|with|on|at|in) "
        rf"(?P<what>\w+){_NOW} $",
        rf"^ my tier is (?:now )?(?P<value>{TIERS}) (?:of|for|with|on|at) (?P<what>\w+) $",
        rf"^ (?:i|we){_LATELY} (?:upgraded|downgraded|switched|moved|changed) (?:my |our "
        r")?(?P<what>\w+)"
        rf"(?: plan| account| subscription)? to (?:the |an? )?(?P<value>{TIERS})(?: plan| tier)?"
        rf"{_NOW} $",
        rf"^ (?:my |our )?(?P<what>\w+) (?:plan|subscription|account|tier) is (?:now )?(?:the )?"
        rf"(?P<value>{TIERS}){_NOW} $",
    ),
    *_told(
        "answers are",
        r" (?:keep|make) (?:your |the )?(?:answers|replies|responses|it) (?:as )?(?P<value>short"
        r"|brief|long"
        r"|detailed|concise|formal|casual|simple)",
        r"(?:i want|i prefer|i like|give me|write|i would like) (?:more |longer )?(?P<value>short"
        r"|brief|long"
        r"|detailed|concise|formal|casual|simple)(?:er)? "
        r"(?:answers|replies|responses|explanations)",
    ),
    *_told(
        "units", r" (?:use|in|prefer|to) (?P<value>metric|imperial|celsius|fahrenheit)(?: units)? "
    ),
    *_told(
        "away {who}",
        r"^ (?P<who>i|we|my \w+|\w+) (?:am|is|are) (?:currently |still |away )*on (?:\w+ "
        r")?(?:leave|holiday"
        r"|holidays|vacation|sabbatical|break)(?: .*)? $",
        value="yes",
    ),
    *_told(
        "away {who}",
        r"^ (?P<who>i|we|my \w+|\w+) (?:am|is|are|came|got|have been) (?:now |finally )*back "
        r"(?:at|from|in|to|home)(?: .*)? $",
        r"^ (?P<who>i|we|my \w+|\w+) (?:am|is|are) no longer on (?:\w+ )?(?:leave|holiday"
        r"|holidays|vacation"
        r"|sabbatical|break)(?: .*)? $",
        value="no",
    ),
    *_told(
        "hospital {who}",
        r"^ (?P<who>i|my \w+|\w+) (?:am|is) (?:still )?in (?:the )?hospital(?: .*)? $",
        value="yes",
    ),
    *_told(
        "hospital {who}",
        r"^ (?P<who>i|my \w+|\w+) (?:(?:am|is|was|got|has been) )?(?:now )?(?:came home|back home"
        r"|home"
        r"|discharged|out of (?:the )?hospital|released)(?: .*)? $",
        value="no",
    ),
    *_told(
        "lodging {who}",
        r"^ (?P<who>my \w+|\w+) (?:lives|is living|stays|is staying) with (?:me|us) $",
        r"^ i (?:live|share an? \w+|am living) with (?P<who>(?:my )?\w+) $",
        value="yes",
    ),
    *_told(
        "lodging {who}",
        r"^ (?P<who>my \w+|\w+) (?:has |just )*moved out(?: .*)? $",
        r"^ i (?:have |just )*moved out of (?P<who>(?:my )?\w+?)(?:'s)? (?:house|place|flat"
        r"|apartment) $",
        value="no",
    ),
    *_told(
        "school {who}",
        r"^ (?P<who>my \w+|\w+) (?:goes to|go to|attends?|is at|am at|is enrolled at) (?:the )?"
        rf"(?P<value>\w+) {_SCHOOL}{_NOW} $",
        corrects=False,
    ),
    *_told(
        "school {who}",
        r"^ (?P<who>my \w+|\w+) (?:has |just |is )*(?:switched|moved|changed|transferred|starts"
        r"|started"
        r"|starting)(?: schools?)?(?: to| at)+ (?:the )?"
        rf"(?P<value>\w+)(?: {_SCHOOL}){_NOW} $",
        rf"^ (?P<who>my \w+|\w+) (?:goes to|go to|attends?|is at) (?:the )?(?P<value>\w+)"
        rf"(?: {_SCHOOL})? now $",
    ),
    *_told(
        "name of {what}",
        r"^ (?:the |my |our )?(?P<what>\w+(?: \w+)?) is (?:called|named) (?P<value>\w+) $",
        corrects=False,
    ),
    *_told(
        "name of {what}",
        r"^ (?:the |my |our )?(?P<what>\w+(?: \w+)?) is now (?:called|named) (?P<value>\w+) $",
        r"^ (?:the |my |our )?(?P<what>\w+(?: \w+)?) is (?:called|named) (?P<value>\w+) now $",
        r"^ (?:we|i|they) (?:have |just )*renamed (?:the |my |our )?(?P<what>\w+(?: \w+)?) to "
        r"(?P<value>\w+) $",
    ),
    *_told(
        "office {what}",
        r"^ (?P<value>\w+) (?:am|is) the (?P<what>\w+) of (?:the |our )?(?:\w+)(?: now)? $",
        r"^ (?P<value>\w+) (?:took over|takes over|was elected|got elected|stepped in) as (?:the )?"
        r"(?P<what>\w+)(?: of (?:the |our )?\w+)? $",
        rf"^ (?P<value>\w+) is the (?P<what>{_OFFICES}) now $",
        rf"^ (?P<value>\w+) is now the (?P<what>{_OFFICES}) $",
    ),
    *_told(
        "meeting place",
        r"^ (?:we|let us)(?: will| are)? meet(?:ing)? (?:at|in) (?:the )?(?P<value>\w+)(?: .*)? $",
        corrects=False,
    ),
    *_told(
        "meeting place",
        r"^ (?:we|let us)(?: will| are)? meet(?:ing)? (?:at|in) (?:the )?(?P<value>\w+) "
        r"(?:instead|now) $",
    ),
    *_told(
        "expecting {who}",
        r"^ (?P<who>i|my \w+|\w+) (?:am|is) (?:\w+ \w+ )?(?:pregnant|expecting)(?: .*)? $",
        value="yes",
    ),
    *_told(
        "expecting {who}",
        r"^ (?P<who>i|my \w+|\w+) (?:has |have |just )*(?:gave birth|had (?:the|our|my|her) "
        r"baby)(?: .*)? $",
        value="no",
    ),
    *_told(
        "fond {what}",
        r"^ i (?:really |absolutely |totally )*(?:like|love|enjoy|adore) (?:my |the "
        r")?(?P<what>\w+(?: \w+)?) $",
        value="yes",
        corrects=False,
    ),
    *_told(
        "fond {what}",
        r"^ i (?:really |absolutely |totally )*(?:hate|dislike|do not like|can not stand|do not "
        r"enjoy) "
        r"(?:my |the )?(?P<what>\w+(?: \w+)?) $",
        value="no",
        corrects=False,
    ),
    *_told(
        "fond {what}",
        r"^ i (?:no longer|do not) (?:really )?(?:like|love|enjoy) (?:my |the )?(?P<what>\w+(?: "
        r"\w+)?)"
        r" (?:any ?more|any longer) $",
        r"^ i no longer (?:really )?(?:like|love|enjoy) (?:my |the )?(?P<what>\w+(?: \w+)?) $",
        value="no",
    ),
    *_told(
        "fond {what}",
        r"^ i (?:like|love|enjoy) (?:my |the )?(?P<what>\w+(?: \w+)?) now $",
        r"^ i (?:have )?(?:now|actually|come to|came to|learned to|started to|grown to|grew to) "
        r"(?:like|love|enjoy) (?:my |the )?(?P<what>\w+(?: \w+)?)(?: now)? $",
        value="yes",
    ),
    *_told(
        "team of {who}",
        r"^ (?P<who>i|my \w+|\w+) (?:am|is|work|works) (?:in|on) (?:the )?(?P<value>\w+) "
        rf"{_GROUP} $",
        corrects=False,
    ),
    *_told(
        "team of {who}",
        r"^ (?P<who>i|my \w+|\w+) (?:have |has |just |was |got |am |is )*(?:transferred|moved"
        r"|switched|changed"
        rf"|reassigned|now in|now on) (?:over )?(?:to )?(?:the )?(?P<value>\w+) {_GROUP} $",
        r"^ (?P<who>i|my \w+|\w+) (?:am|is|work|works) (?:in|on) (?:the )?(?P<value>\w+) "
        rf"{_GROUP} now $",
    ),
    *_told(
        "expecting {who}",
        r"^ (?:our|my|the) (?:baby|son|daughter|twins) (?:was|were|is|has)? ?(?:born|arrived|here)"
        r"(?: .*)? $",
        r"^ (?P<who>i) am (?:no longer|not) pregnant(?: any ?more)? $",
        value="no",
    ),
    *_told(
        "answer in",
        r"^ (?:now |please |you should |you can |could you )*(?:always |only )?(?:answer|reply"
        r"|respond"
        r"|write|speak|talk|switch|stick)(?: back)?(?: to me| me| with me)?"
        rf" (?:in|to) (?P<value>{LANGUAGES})(?: please| now| again| only)* $",
        rf"^ (?:i|we) (?:now )?(?:want|prefer|need) (?:\w+ )?(?:answers|replies) in "
        rf"(?P<value>{LANGUAGES})(?: now)? $",
        rf"^ (?:bitte )?(?:antworte|schreib|sprich) (?:mir |bitte |ab jetzt )*auf "
        rf"(?P<value>{LANGUAGES}) $",
    ),
    *_told(
        "occupation {what}",
        rf"^ {_WHO} (?:am|is|are|work as|works as|have become|has become|became)(?: an?)? "
        rf"(?:\w+ ){{0,2}}?(?P<value>{OCCUPATIONS})(?: (?:at|in|for|with) .*)? $",
        corrects=False,
    ),
    *_told(
        "occupation {what}",
        rf"^ {_WHO}{_LATELY} (?:am now|is now|became|become|started as|work now as|retrained as"
        rf"|switched to being|work as now|got promoted to|was promoted to)(?: an?)? "
        rf"(?:\w+ ){{0,2}}?(?P<value>{OCCUPATIONS})(?: .*)? $",
        rf"^ {_WHO} (?:am|is|work as|works as)(?: an?)? (?:\w+ ){{0,2}}?(?P<value>{OCCUPATIONS})"
        r"(?: (?:at|in|for|with) .*)? now $",
    ),
    *(
        _Attribute(_PRODUCTS, f"{kind} of mine", "", re.compile(pattern), corrects)
        for kind, products in KINDS.items()
        for pattern, corrects in (
            (
                rf"^ (?:i|we){_LATELY} (?:use|have|own|drive|ride|write|code|work|am on|run|host"
                r"|deploy"
                r"|bank)(?: (?:an?|my|on|in|with|at|everything|our \w+))* "
                rf"(?P<value>(?:{products}) .*) $",
                False,
            ),
            (
                rf"^ (?:i|we|my \w+){_LATELY} (?:switched|moved|migrated|changed|upgraded|went|am"
                r"|converted|traded)(?: \w+)??(?: from .*| over| back)? (?:to|for|on)(?: an?| "
                r"the)? "
                rf"(?:new )?(?P<value>(?:{products}) .*) $",
                True,
            ),
            (
                r"^ my (?:account|banking|money|files|data|stuff) (?:moved to|is now (?:in|on"
                r"|with|at)) "
                rf"(?P<value>(?:{products}) .*) $",
                True,
            ),
            (rf"^ my {kind} is (?:an? )?(?P<value>(?:{products}) .*) $", False),
            (
                rf"^ (?:i|we){_LATELY} (?:bought|got) (?:myself )?(?:an?|my) new "
                rf"(?P<value>(?:{products}) .*) $",
                True,
            ),
            (
                rf"^ (?:i|we){_LATELY} (?:use|drive|ride|write|code|work|run|host|deploy|bank)"
                rf"(?: (?:an?|my|on|in|with|at|everything|our \w+))* (?P<value>(?:{products}) "
                r".*)now $",
                True,
            ),
        )
    ),
    *(
        attribute
        for what, (no, yes) in DIETS.items()
        for attribute in (
            *_told(f"consumes: {what}", no, value="no"),
            *_told(f"consumes: {what}", yes, value="yes"),
        )
    ),
)


_INDEX: Final = SignIndex(attribute.signs for attribute in _ATTRIBUTES)


def attributes(text: str) -> Iterator[Assertion]:
    """The values of attributes that a clause tells, by what `spoken` makes of it."""
    for place in _INDEX.places(text):
        attribute = _ATTRIBUTES[place]
        told = attribute.pattern.search(text)
        if told is None:
            continue
        parts = {"who": "i", **told.groupdict()}
        parts["who"] = parts["who"] or "i"
        value = attribute.value or parts["value"].strip()
        is_time = not IN_WORDS.keys().isdisjoint(value.split())
        if is_time and attribute.key == _KEPT:  # "on Friday" is no place
            continue
        yield Assertion(attribute.key.format(**parts), value, attribute.corrects)
