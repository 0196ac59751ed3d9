"""Everyday wordings of quantities, of states, and of what somebody does again, in plain form."""

from __future__ import annotations

from typing import Final

from ecs_plugins.memory.rewording import worded

THINGS: Final = (
    # Quantities, and things by their kinds
    worded("kilos kilograms pounds", r" (?:kilos|kilograms) ", " kg "),
    worded("down up", r" am (?:down|up|back) to (?=\S+ (?:kg|pounds|lbs|stone) )", " weigh "),
    worded("kids child kid", r" (?:kids|child|kid) ", " children "),
    worded("order", r" (?:my|our|your) order (?=\d)", " order "),
    worded(
        "flight train gate",
        r"^ (?:the |my |our )?(?:flight|train|bus) (?=\w{1,3} ?\d+ )",
        " ",
    ),
    worded(
        "mum mom dad mother father grandma grandpa",
        r"^ (?=(?:mum|mom|dad|grandma|grandpa) )",
        " my ",
    ),
    worded(
        "budget password code pin limit deadline price rent key address",
        r" (?:my|our|the) (?P<what>budget|limit|deadline|price|rent) (?:for|of) "
        r"(?:the |my |our )?(?P<of>\w+) (?=is )",
        r" the \g<of> \g<what> ",
    ),
    worded(
        "with",
        r"^ (?P<what>my (?:\w+ )?(?:insurance|policy|plan|contract|account|mortgage|loan|pension"
        r"|broadband|internet"
        r"|electricity|gas|savings)) is with ",
        r" \g<what> is ",
    ),
    worded(
        "for",
        r" (?P<how>rescheduled|rebooked|postponed|scheduled) for (?=\S+(?: at \S+)? $)",
        r" \g<how> to ",
    ),
    worded(
        "hosted stored deployed kept runs",
        r" (?:is hosted|is stored|is deployed|is kept|runs) (?:on|at|in) (?=\S+ (?:now )?$)",
        " is on ",
    ),
    worded(
        "go goes known",
        r"^ (?P<who>i|people|you) (?:now )?(?:go by|am known as|call me|know me as) (?=\S+ "
        r"(?:now )?$)",
        " my call name is ",
    ),
    worded(
        "favourite favorite",
        r"^ (?P<value>\S+(?: \S+)?) is (?:now )?my (?:new )?favou?rite (?P<what>\w+)(?: now)? $",
        r" my favorite \g<what> is \g<value> ",
    ),
    worded(
        "turned switched",
        r"^ (?:i|we) (?:have |just )*(?:turned|switched) (?P<how>on|off) (?P<what>(?:the|my|our) "
        r"\S+(?: \S+)?) $",
        r" \g<what> is now \g<how> ",
    ),
    worded(
        "enabled disabled paused closed blocked unblocked merged approved rejected resolved "
        "sold unlocked locked published paid fixed repaired",
        r"^ (?:i|we|they|\w+) (?:have |has |just |finally )*(?P<how>enabled|disabled|paused"
        r"|closed|locked"
        r"|unlocked|blocked|unblocked|merged|approved|rejected|resolved|sold|published|paid"
        r"|fixed|repaired) (?P<what>(?:the|my|our) \S+(?: \S+)?) $",
        r" \g<what> is now \g<how> ",
    ),
    worded(
        "job laid fired sacked quit resigned let",
        r"^ (?P<who>i) (?:have |was |got |just )*(?:quit my job|laid off|fired|sacked|resigned"
        r"|let go|made redundant) $",
        r" \g<who> am unemployed now ",
    ),
    worded(
        "down up back", r" (?:is|are) (?:now )?(?:down|up|back) (?:to|at) (?=\S*\d)", " is now "
    ),
    worded(
        "planned scheduled set due slated",
        r" is (?:planned|scheduled|set|due|slated) (?:for|on) (?=\S+ (?:at \S+ )?$)",
        " is on ",
    ),
    worded(
        "made",
        r"^ (?:i|we|they) (?:have |just )*made (?P<what>(?:the|my|our) \S+) (?P<how>\w+) $",
        r" \g<what> is now \g<how> ",
    ),
    worded(
        "haven have",
        r" (?:have|has) not (?P<what>\w+(?:ed|en)) (?P<rest>.*?)(?:for (?:\w+ )?(?:years"
        r"|months|weeks) |now )$",
        r" no longer \g<what> \g<rest>",
    ),
    worded("back", r" (?:is|are) back (?=(?:up|online|open|on|in) )", " is now "),
    worded(
        "upgraded moved switched changed rebooked assigned transferred",
        r"^ (?:i|we) (?:have |just |got |was |were |been |am )*(?:upgraded|moved|switched"
        r"|changed|rebooked"
        r"|assigned|transferred) (?:to|into|onto|on) (?:the )?(?P<what>seat|room|gate|desk"
        r"|table|flight"
        r"|platform|lane|group|section|apartment|floor|chapter|version|level|track|line|train"
        r"|bus|slot"
        r"|row|unit|cabin|locker|bay|ward) (?=\S*\d)",
        r" my \g<what> is now ",
    ),
    worded(
        "rebooked",
        r"^ (?:they|\w+) (?:have |has )?rebooked me (?:on|onto|to) ",
        " my flight is now ",
    ),
    worded(
        "let's let do have",
        r"^ (?:let's|let us|we will|we) (?:do|have|hold) (?P<what>dinner|lunch|breakfast"
        r"|brunch|drinks|coffee"
        r"|the \w+) (?P<where>at|on|in) ",
        r" \g<what> is \g<where> ",
    ),
    worded(
        "switched changed moved refinanced transferred",
        r"^ (?:i|we) (?:have |just )*(?:switched|changed|moved|refinanced|transferred) "
        r"(?:(?:our|my|the) )?"
        r"(?P<what>(?:\w+ )?(?:provider|supplier|insurer|insurance|carrier|mortgage|loan|pension"
        r"|broadband|internet|electricity|contract)) (?:to|with|over to) ",
        r" my \g<what> is now ",
    ),
    worded(
        "was were got been",
        r" (?:was|were|got|has been|have been) (?=(?:blocked|unblocked|merged|approved"
        r"|rejected|fixed|resolved"
        r"|closed|locked|unlocked|published|paid|sold|enabled|disabled|paused|shipped|delivered"
        r"|returned|repaired) )",
        " is now ",
    ),
    worded("promoted", r" (?:got|was|am|have been|has been) promoted to (?:an? )?", " am now a "),
    worded("date time", r" has a new (?:date|time|slot) ", " is now on "),
    worded(
        "filled emptied",
        r"^ (?:i|we|they|\w+) (?:have |has |just )*(?:filled|emptied)(?: up)? (?P<what>(?:the"
        r"|my|our) \w+) $",
        r" \g<what> is now full ",
    ),
    # States
    worded(
        "works working runs running fixed back",
        r" (?:works|is working|runs|is running|is fixed|is repaired|got fixed|got repaired"
        r"|has been fixed|is up and running|is as good as new)(?: fine| properly| just)?(?: "
        r"again| now) $",
        " is fixed now ",
    ),
    worded(
        "green passing passes failing fails red",
        r" (?P<what>build|tests|test|ci|pipeline|job|branch|main)(?: suite)? "
        r"(?:is|are|is passing|passes|pass|succeeds) (?:green|passing)?(?: again| now)* $",
        r" \g<what> is passing now ",
    ),
    worded(
        "fails fail red failing",
        r" (?P<what>build|tests|test|ci|pipeline|job|branch|main)(?: suite)? "
        r"(?:is red|are red|fails|fail|keeps failing)(?: again| now)* $",
        r" \g<what> is failing now ",
    ),
    worded("being", r" is being (?=prepared|processed|packed)", " is "),
    worded(
        "shipped delivered arrived",
        r" (?:has|was|just|got|is) (?:just |now )*(?:shipped|dispatched|sent out) ",
        " is shipped ",
    ),
    worded(
        "arrived delivered",
        r" (?:has|just)? ?(?:just |finally )*(?:arrived|delivered)(?: today)? $",
        " is delivered ",
    ),
    worded(
        "job",
        r"^ (?P<who>\w+|my \w+) (?:have |just |finally )*(?:found|got|landed|have|started) "
        r"(?:a|my)(?: new)? job $",
        r" \g<who> am employed now ",
    ),
    worded(
        "job",
        r"^ (?P<who>\w+|my \w+) (?:have |just )*lost (?:my|his|her) job ",
        r" \g<who> am unemployed now ",
    ),
    worded(
        "retired",
        r" (?:has |just |finally )*retired (?:in \w+|last \w+|this \w+|now|yesterday|early)? ?$",
        " is retired now ",
    ),
    # What one does again
    worded(
        "back returned resumed picked got went",
        r" (?:am back to|went back to|returned to|resumed|got back into|have gone back to"
        r"|picked up) (?=\w+ing )",
        " now ",
    ),
    worded("back", r" am back from (?:my |our |the )?(?P<what>\w+)", r" am no longer on \g<what>"),
)
