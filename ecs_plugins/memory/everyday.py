"""Everyday wordings, and the plain form in which the rules of correction know them.

"They changed the code to 4712" becomes "the code is now 4712", and "I quit my job at Siemens" is "I
no longer work at Siemens". English first, then what other languages say of homes, work, marriages
and days that are moved.
"""

from __future__ import annotations

from typing import Final

from ecs_plugins.memory.abroad import ABROAD, IN_OTHER_SCRIPTS
from ecs_plugins.memory.rewording import Rewordings, worded
from ecs_plugins.memory.things import THINGS

CHANGING = (
    "moved|relocated|rescheduled|postponed|pushed|changed|upgraded|switched|migrated|updated|raised"
    "|lowered|cut|extended|increased|reduced|dropped|reset|rose|went up|went down|jumped|grew|fell"
    "|shrank|slipped|climbed|came down|bumped up"
)
"""Verbs of what gets another value."""

_PUT_OFF = (
    "postponed|rescheduled|rebooked|moved|pushed|shifted|delayed|brought forward|bumped|switched"
    "|migrated|transferred"
)
_SET = (
    "changed|updated|renamed|reset|switched|raised|lowered|cut|increased|reduced|extended|bumped"
    "|bump|raise|lower|change|set|upped|corrected|adjusted|dropped"
)
_DONE = "shipped|delivered|returned|approved|rejected|sold|fixed|repaired|closed"
_HABITS = "go to bed|get up|wake up|start work|finish work|have lunch|have dinner"
_HAVE_NEW = "(?:just |have |now )*(?:got|have) an? new"
_THINGS = "laptop|computer|phone|car|bike|tablet|camera|printer|motorbike|scooter"
EVERYDAY: Final = Rewordings(
    (
        # Who found out is no part of what is so.
        worded(
            "test tests doctor result results vet",
            r" (?:the|my) (?:test|tests|doctor|results?|vet) (?:says?|said|shows?|showed)(?: "
            r"that)? ",
            " ",
        ),
        worded("out", r" (?:it )?(?:turns|turned) out(?: that)? ", " "),
        # When it ended says nothing of what did.
        worded(
            "quit resigned fired laid sacked left",
            r"(?P<what> (?:quit|resigned|fired|laid|sacked|left) .*) "
            r"(?:last \w+|yesterday|today|this \w+) $",
            r"\g<what> ",
        ),
        # What it is not is what it was.
        worded("not", r" (?P<what>is (?:\w+ )?\S+) not (?:\w+ )?\S+ $", r" \g<what> now "),
        # Somebody changed it.
        worded(
            _SET,
            rf" (?:(?:the |my |our |let )?[^\W\d]+|dr \w+) (?:have |has |just )*(?:{_SET}) "
            r"(?P<what>(?:the|my|our) \S+(?: \S+){0,5}?) to ",
            r" \g<what> is now ",
        ),
        worded(
            "change set update adjust put raise lower",
            r"^ (?:please )?(?:change|set|update|adjust|put|raise|lower) (?P<what>(?:the|my|our) "
            r"\S+(?: \S+){0,3}?) to ",
            r" \g<what> is now ",
        ),
        # What one has one of
        worded(
            _THINGS,
            rf"^ my (?P<what>new |)(?P<thing>{_THINGS}) is an? ",
            r" my \g<what>\g<thing> is ",
        ),
        worded("drive own ride", r"^ i (?:drive|own|ride) an? ", " i have a "),
        worded(
            "traded swapped exchanged sold",
            r"^ (?:i|we) (?:have |just )*(?:traded|swapped|exchanged|sold) (?:in )?my (?P<old>\w+) "
            r"(?:(?:for|and) .* )?$",
            r" i no longer have a \g<old> ",
        ),
        worded(
            "size",
            r"^ i (?:am|wear|take)(?: a| now)? size (?=\w+ (?:now )?$)",
            " my size is ",
        ),
        worded(
            "plan",
            r"^ (?:i|we) (?:am|are) on (?:the|an?) (?P<plan>\w+) plan ",
            r" my tier is \g<plan> ",
        ),
        worded(
            "upgraded downgraded",
            r"^ (?:i|we) (?:have |just )*(?:up|down)graded to (?:the |an? )?(?P<plan>\w+)(?: "
            r"plan)? $",
            r" my tier is now \g<plan> ",
        ),
        worded(
            "number",
            r" my (?P<new>new )?number (?=is (?:now )?\+?\d[\d-]{4})",
            r" my \g<new>phone number ",
        ),
        worded(
            "reach call text",
            r"^ you can (?:reach|call|text) me (?:at|on|under) (?P<value>\S*\d\S*) "
            r"(?:from now on|now|instead) $",
            r" my phone number is now \g<value> ",
        ),
        worded(_HABITS, rf"^ i (?P<what>{_HABITS}) at (?=\d)", r" my \g<what> hour is "),
        worded(_DONE, rf" (?:has|have) been (?={_DONE} )", " is "),
        # Somebody put it off.
        worded(
            _PUT_OFF,
            r" (?:they|we|i|someone|he|she|the \w+) (?:have |has |had |just |to )*"
            rf"(?:{_PUT_OFF}) (?P<what>(?:the|my|our) \S+(?: \S+){{0,3}}?) "
            r"(?:back |forward |out )?to (?!\w+ to \d)",
            r" \g<what> moved to ",
        ),
        worded(
            _PUT_OFF,
            rf" \w+ (?:has |had to |just )*(?:{_PUT_OFF}) (?P<what>lunch|dinner|breakfast|brunch"
            r"|drinks"
            r"|coffee|practice|rehearsal|training) (?:back |forward |out )?to ",
            r" \g<what> moved to ",
        ),
        # There is a new one.
        worded(
            "new",
            rf"^ our (?:i|we) {_HAVE_NEW} (?P<what>\S+(?: \S+){{0,2}}?) is ",
            r" my \g<what> is now ",
        ),
        worded(
            "new",
            rf"^ (?:i|we) {_HAVE_NEW} (?P<what>\w+(?: (?:number|address|code))?) (?=\S*[\d@])",
            r" my \g<what> is now ",
        ),
        worded(
            "use",
            r"^ use (?P<value>\S+(?: \S+){0,2}?) as (?P<what>(?:my|our|the) \S+(?: \S+)?) "
            r"(?:from now on |instead |now )*$",
            r" \g<what> is now \g<value> ",
        ),
        worded(CHANGING, rf" (?P<verb>{CHANGING}) from \S+(?: \S+){{0,2}}? to ", r" \g<verb> to "),
        # Health
        worded(
            "allergy",
            r" (?:outgrew|got over|lost) (?:my|the) (\w+) allergy ",
            r" am not allergic to \1 ",
        ),
        worded("allergy", r" (?:have|has) an? (\w+) allergy ", r" am allergic to \1 "),
        worded(
            "allergy",
            r"^ (?:my|the) (\w+) allergy (?:is gone|has gone|has disappeared|has cleared up|is "
            r"cured|went away|disappeared|cleared up) ",
            r" i am not allergic to \1 ",
        ),
        worded("being", r" (?:stopped|quit) being ", " am no longer "),
        # Habits
        worded(
            "started began took", r" (?:have |has )?(?:started|began|took up) (?=\w+ing )", " now "
        ),
        # Marriage
        worded(
            "divorced separated married engaged",
            r"^ \w+ and i (?:have |are |were |got )*(?=(?:divorced|separated|married|engaged) )",
            " i am ",
        ),
        worded("got", r" got (?=divorced |separated |married |engaged )", " am "),
        *THINGS,
        # Work
        worded(
            "started start starting joined signed accepted landed took",
            r"^ (?P<who>i|we|my \w+|\w+) (?:am |is |have |has |just |officially )*(?:started"
            r"|starting"
            r"|signed(?: on)?|(?:accepted|landed|took|got|found) (?:a|the|an)(?: new)? (?:job"
            r"|position|role"
            r"|offer)(?: as an? \w+(?: \w+)?)?|start|(?:am|is) now working) (?:at|with|from) "
            r"(?!\d|noon|the|midnight|a )",
            r" \g<who> now works at ",
        ),
        worded(
            "new",
            r"^ my new (?:job|employer|company|workplace) is (?:at |with )?",
            " i now work at ",
        ),
        worded(
            "as",
            r" (?P<who>work|works|working) as an? \w+(?: \w+)? (?=(?:at|for) )",
            r" \g<who> ",
        ),
        worded(
            "quit resigned retired laid let fired sacked dismissed notice",
            r" (?:quit my job at|(?:handed in|gave) my notice at|resigned from|retired from"
            r"|(?:was |got )?(?:laid off|let go|fired|sacked|dismissed) (?:from|by)) ",
            " no longer work at ",
        ),
        worded(
            "hired employed switched",
            r" (?:(?:was|got) (?:hired|employed) (?:by|at)|switched to a job at) ",
            " work at ",
        ),
        worded("left", r"^ i (?:have |just )*left (?=\w+ $)", " i no longer work at "),
        # Homes
        worded(
            "in",
            r" (?P<verb>live|lives|living) in (?:an?|the|our|my) (?:\w+ )?(?:flat|house|apartment"
            r"|studio"
            r"|room|cottage|place|loft) in ",
            r" \g<verb> in ",
        ),
        worded(
            "bought rented found got",
            r" (?:have |just |finally )*(?:bought|rented|found|got) an? (?:\w+ )?(?:flat|house"
            r"|apartment"
            r"|studio|room|cottage|place) in (?P<where>\S+) and (?:have |just |already )*(?:moved"
            r"|settled) in ",
            r" moved to \g<where> ",
        ),
        worded("made", r" (?:have |just |finally )*(?:made|completed) the move to ", " moved to "),
        worded(
            "home", r" (?:call|calls) (?P<where>\S+) home(?: now)? ", r" now live in \g<where> "
        ),
        worded(
            "moved",
            r" moved into (?:a|an|my|our|the) (?:new )?(?:place|flat|apartment|home|house) in ",
            " moved to ",
        ),
        worded(
            "settled", r"^ (?P<who>i|we) (?:have )?settled (?:down )?in ", r" \g<who> moved to "
        ),
        worded(
            "place flat apartment home house",
            r"^ my new (?:place|flat|apartment|home|house) is in ",
            " i moved to ",
        ),
        # Names
        worded("call", r"^ call me ", " my call name is "),
        *ABROAD,
    )
)


def reworded(text: str) -> str:
    """A text with everyday wordings in their plain form.

    Args:
        text: Words in small letters, each with a space before and behind it.
    """
    text = EVERYDAY.applied(text)
    if not text.isascii():
        for pattern, plain in IN_OTHER_SCRIPTS:
            text = pattern.sub(plain, text)
    return text
