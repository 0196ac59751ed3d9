"""What somebody has, uses, takes or does steadily, and that this has ended.

"I take ibuprofen for my back" says that I take ibuprofen; "I stopped taking ibuprofen", "I quit
the ibuprofen" and "I replaced the ibuprofen with aspirin" that I no longer do. Only an end outdates
such a statement: whoever takes another thing may well take both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ecs_plugins.memory.statements import Assertion, is_name, stem
from ecs_plugins.memory.wording import word_list

_WHO: Final = r"(?P<who>i|we|(?:my|our) [a-z]+|[^\W\d_]+)"
_LATELY: Final = (
    r"(?: (?:have|has|had|just|finally|already|recently|now|also|still|currently|officially"
    r"|decided to|been|gladly|then))*"
)
_HAS: Final = re.compile(
    rf"^ {_WHO}{_LATELY} (?:have|has|own|owns|use|uses|drive|drives|ride|rides|play|plays|take"
    r"|takes|wear|wears|rent|rents|attend|attends|learn|learns|study|studies|eat|eats|drink|drinks"
    r"|watch|watches|read|reads|smoke|smokes|grow|grows|keep|keeps|teach|teaches|practise|practice"
    r"|do|does|run|runs|share|collect|want to become|want to be|want|subscribe to|subscribes to"
    r"|belong to|pay for|bank with"
    r"|banks with|(?:am|is|are) (?:with|on|in|learning|reading|taking|using|watching|studying"
    r"|playing|doing|renting|saving for|working on|writing|training for|seeing|wearing|running"
    r"|getting|hosting|joining|organi[sz]ing|planning|attending|driving|building|living in|moving "
    r"to"
    r"|working at|working for|going(?: to)?"
    r"|(?:an? )?(?:member|customer|subscriber|student|volunteer) (?:of|at|to|in|with))|go to|goes "
    r"to"
    r"|live with|lives with|live in|lives in|work at|works at|work for|works for|(?:deploy"
    r"|deploys|host|hosts|run|runs|write|work) (?:on|in|with)"
    r"|volunteer (?:at|for|with)|(?:am |is |are )?signed up for|share an? \w+ with) "
    r"(?P<what>\S.*?) $"
)
_DOING: Final = (
    r"(?:using|taking|driving|playing|wearing|eating|drinking|learning|studying|watching|reading"
    r"|renting|running|teaching|smoking|doing|going to|subscribing to|paying for|seeing|working on"
    r"|growing|keeping|riding|attending|writing|training for|saving for|practising|practicing"
    r"|volunteering (?:at|for|with)|working with|getting|having|going)"
)
_DO: Final = _DOING.replace("ing", "").replace("driv", "drive|driv")
_PRESCRIBED: Final = re.compile(
    r"^ (?:(?:my|the) )?\w+(?: \w+)? (?:has |have |just )*(?P<how>put|started|took) me (?:on|off) "
    r"(?P<what>\S.*?) $"
)
_ENDED: Final = re.compile(
    rf"^ {_WHO}{_LATELY} (?:(?:am |is |are )?(?:cancell?ed|quit|stopped|gave up|given up|ended"
    r"|dropped|closed|sold|returned|deleted|uninstalled|got rid of|gotten rid of|replaced|swapped"
    r"|traded in|traded|ditched|finished|gave away|given away|threw away|threw out|abandoned"
    r"|dropped out of|cut out|signed off from|unsubscribed from|withdrew from|resigned from|moved "
    r"out of"
    r"|came off|went off|scrapped|terminated|left|lost|donated|discontinued|done with|off"
    r"|finished with|through with|back from|parted with|backed out of|pulled out of|decided "
    r"against|changed my mind about)"
    rf"|(?:switched|migrated|changed|moved|upgraded)(?: over| away)? from) (?:on )?(?:{_DOING} )?"
    r"(?P<what>\S.*?) $"
)
_REMOVED: Final = re.compile(
    rf"^ {_WHO}{_LATELY} (?:got|had) (?:my|our) (?P<what>\S+(?: \S+)?) (?:off|removed|taken out"
    r"|out)(?: \w+)? $"
)
_IS_A: Final = re.compile(
    rf"^ {_WHO}{_LATELY} (?:am|is|are) (?:an? |the )(?P<what>[a-z]+(?: [a-z]+)?) "
    r"(?:at|in|of|for|with|on|by) .* $"
)
_IS_NAMED: Final = re.compile(
    r"^ (?:my|our) \w+(?: \w+)? is (?:an? |dr |mr |mrs |ms )?(?P<what>\S+) $"
)
_NO_LONGER: Final = re.compile(
    rf"^ {_WHO}{_LATELY} (?:(?:do|does|am|is|are|have|has|can) )?(?:no longer|not)(?P<any> any "
    r"?more)? "
    r"(?:have|has|own|use|drive|ride|play|take|wear|rent|attend|need|learn|study|eat|drink|watch"
    r"|read"
    r"|smoke|do|run|teach|keep|go to|want to become|want to be|want|moving to|live with|subscribe "
    r"to|on|with|in|an?|bank with|work with"
    rf"|{_DOING}) (?P<what>\S.*?) $"
)
_WAS_ENDED: Final = re.compile(
    r"^ (?:(?:my|our|the) )?(?P<what>\S+(?: \S+){0,3}?)(?: (?:has|have|is|are|was|were|been|just"
    r"|finally|now))* (?:cancell?ed|expired|ran out|lapsed|sold|gone|died|passed away|stolen"
    r"|terminated|discontinued|closed down|deleted|ended|totall?ed)(?: \w+){0,2} $"
)
_END_MARKS: Final = (" no longer ", " after all ", " anymore ", " any more ", " any longer ")
_KINDS: Final = word_list(
    """subscription membership account plan app licence license classes class lessons lesson course
    service contract medication meds pills tablets policy insurance training habit project gym"""
)
_MOST_WORDS: Final = 4
_BELONGING: Final = word_list("member customer subscriber volunteer fan part")
_DETERMINERS: Final = word_list(
    "dr mr mrs ms a an the my our your his her their some any all both that this new old on of to "
    "in for anymore more longer"
)
_ENOUGH: Final = re.compile(
    r" (?:for|with|to|in|at|on|since|every|because|so|when|while|and|after|before|by|from|as|until"
    r"|about|once|twice|during|if|last|this|next|yesterday|today|again|now|these|over|completely"
    r"|altogether|entirely|but|through|into|due|of|daily|regularly|instead|off) .*$"
)
_CALLED: Final = re.compile(r" (?:called|named) (?P<name>\S+) ")


def keeping(text: str, names: set[str]) -> Iterator[Assertion]:
    """What somebody keeps to, or has given up, by what `spoken` makes of a clause.

    Args:
        text: Words in small letters, each with a space before and behind it.
        names: Those that the clause writes large.
    """
    ended = _ended(text)
    if ended is not None:
        who, what = ended
        phrases = _phrases(what, names)
        if phrases and not _is_of_another(what, phrases[0], names):
            yield Assertion(f"keep {who} {phrases[0]}", "no")
        return
    for who, phrase in _kept(text, names):
        yield Assertion(f"keep {who} {phrase}", "yes", corrects=False)


def _kept(text: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """Who has, uses, takes or is what."""
    is_a = _IS_A.match(text)
    if is_a is not None and is_a["what"] not in _BELONGING:
        yield _whose(is_a["who"]), stem(is_a["what"])
    is_named = _IS_NAMED.match(text)
    if is_named is not None and (is_named["what"] in names or "@" in is_named["what"]):
        yield "i", stem(is_named["what"])
    has = _HAS.match(text) or _PRESCRIBED.match(text)
    if has is None:
        return
    who = _whose(has.groupdict().get("who", "i"))
    phrases = _phrases(has["what"], names)
    called = _CALLED.search(text)
    if called is not None:
        phrases.append(called["name"])
    for phrase in dict.fromkeys(phrases):
        yield who, phrase


def _ended(text: str) -> tuple[str, str] | None:
    """Who has given up what; None if nothing is said to have ended."""
    ended = _ENDED.match(text) or _REMOVED.match(text)
    if ended is not None:
        return _whose(ended["who"]), ended["what"]
    prescribed = _PRESCRIBED.match(text)
    if prescribed is not None and prescribed["how"] == "took":
        return "i", prescribed["what"]
    if any(mark in text for mark in _END_MARKS):
        ended = _NO_LONGER.match(text)
        if ended is not None:
            return _whose(ended["who"]), ended["what"]
    ended = _WAS_ENDED.match(text)
    return None if ended is None else ("i", ended["what"])


def _whose(who: str) -> str:
    return "i" if who == "we" else who


def _phrases(what: str, names: set[str]) -> list[str]:
    """What is kept: the whole of it, and each of its words that may stand for it alone.

    A thing with a name goes by that, and by its kind; "work phone" is no "phone".
    """
    said = what.split()
    text = _ENOUGH.sub(" ", f" {what} ")
    words = _without_kinds([word for word in text.split() if word not in _DETERMINERS])
    if not 0 < len(words) <= _MOST_WORDS:
        return []
    phrases = [" ".join(map(stem, words))]
    if not _KINDS.isdisjoint(said):  # "a membership at Gold's"
        phrases += [stem(word) for word in said if is_name(word, names)]
    if len(words) == 1:
        return phrases
    proper = [word for word in words if word in names or word[0].isdigit()]
    phrases += map(stem, proper)
    if len(proper) >= len(words) - 1:
        phrases.append(stem(words[-1]))
    return phrases


def _is_of_another(what: str, phrase: str, names: set[str]) -> bool:
    """Whether a name that the phrase leaves out says which of several has ended."""
    named = [stem(word) for word in what.split() if is_name(word, names)]
    return bool(named) and not any(name in phrase for name in named)


def _without_kinds(words: list[str]) -> list[str]:
    """The words without what they end in that only says of which kind it is."""
    end = len(words)
    while end > 1 and words[end - 1] in _KINDS:
        end -= 1
    return words[:end]
