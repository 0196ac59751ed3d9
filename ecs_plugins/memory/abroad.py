"""What other languages say of homes, work, marriages and days that are moved, in plain form."""

from __future__ import annotations

import re
from typing import Final

from ecs_plugins.memory.rewording import worded

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
ABROAD: Final = (
    # No longer
    worded(
        "plus più",
        r" n(?:e|on)? (?P<verb>\w+) p(?:lus|iù) ",
        r" no longer \g<verb> ",
    ),
    worded("mehr", r" (?P<verb>\w+) nicht mehr ", r" no longer \g<verb> "),
    worded(
        "mehr",
        r" (?P<verb>\w+) keine?[nrm]? (?P<what>\w+) mehr ",
        r" no longer \g<verb> \g<what> ",
    ),
    worded(
        "arrêté",
        r"^ j(?:e)? ai arrêté (?:de |d )(?P<verb>\w+)er ",
        r" je no longer \g<verb>e ",
    ),
    worded(
        "dejé dejado",
        r"^ (?:yo )?(?:dejé|he dejado) de (?P<verb>\w+)[aei]r ",
        r" yo no longer \g<verb>o ",
    ),
    worded("smesso", r"^ (?:io )?ho smesso di (?P<verb>\w+)[aei]re ", r" io no longer \g<verb>o "),
    worded("llama", r" se llama ", " es "),
    worded(
        "aufgehört",
        r"^ ich (?:habe|hab) aufgehört zu (?P<verb>\w+)en ",
        r" ich no longer \g<verb>e ",
    ),
    worded("j", r"^ j ai (?:commencé|débuté|signé|été embauchée?) chez ", " je travaille chez "),
    # German
    worded(
        "der die das",
        r"^ (?:der|die|das) (?=(?:neue |alte )?\S+ (?:\S+ \S+ )?(?:ist|sind|wurde|wird|findet"
        r"|kostet"
        r"|beginnt|liegt|lautet|hat|fällt) )",
        " ",
    ),
    worded("lautet heisst", r"^ (?P<what>\S+(?: \S+)?) (?:lautet|heisst) ", r" \g<what> ist "),
    worded(
        "findet beginnt",
        r" findet (?:jetzt |nun )?(?:erst |schon )?"
        r"(?P<when>(?:am |um |an )?\S+(?: um \S+)?) statt ",
        r" ist \g<when> jetzt ",
    ),
    worded(
        "gekündigt",
        r"^ ich (?:habe|hab) (?:meinen job |meine stelle )?bei (?P<where>\S+) gekündigt ",
        r" ich nicht mehr arbeite bei \g<where> ",
    ),
    worded(
        "angefangen begonnen",
        r"^ ich (?:habe|hab) (?:\w+ )?bei (?P<where>\S+) (?:angefangen|begonnen) ",
        r" ich arbeite bei \g<where> ",
    ),
    worded("abgesagt fällt", r" (?:ist|wurde|wird) abgesagt | fällt aus ", " is off "),
    # French
    worded("vis vit", r" (?:vis|vit)(?: maintenant)? à ", " habite à "),
    worded("habite", r" habite maintenant ", " habite "),
    worded("emménagé installé installée", r" (?:ai emménagé|me suis installée?) à ", " habite à "),
    worded(
        "travaille",
        r" (?:commence à |commencé à |maintenant )?travailler?(?: maintenant)? (?:chez|pour|à) ",
        " travaille chez ",
    ),
    worded(
        "quitté démissionné",
        r" ai (?:quitté|démissionné de) (?=\S+ $)",
        " ne travaille plus chez ",
    ),
    worded("annulé annulée", r" (?:est|a été) annulée? ", " is off "),
    worded(
        "reporté déplacé décalé avancé",
        r"^ \S+ a (?:reporté|déplacé|décalé|avancé) (?P<what>(?:le|la|notre|mon|ma) \S+) (?:à|au) ",
        r" \g<what> moved to ",
    ),
    # Spanish and Italian
    worded(
        "vivo trabajo soy estoy tengo fumo como bebo uso juego tomo estudio",
        r"^ (?P<lead>(?:ahora |todavía |aún |de nuevo )?)(?P<no>(?:ya no |no longer |no )?)"
        r"(?=(?:vivo|trabajo|soy|estoy|tengo|fumo|como|bebo|uso|juego|tomo|estudio) )",
        r" \g<lead>yo \g<no>",
    ),
    worded(
        "mudado mudamos trasladado",
        r" (?:me he|nos hemos|me) (?:mudado|trasladado) a ",
        " yo live ",
    ),
    worded("nos", r"^ nos mudamos a ", " yo live "),
    worded(
        "trabajar",
        r"^ (?:yo )?(?:he empezado|empecé|empiezo|comencé|he comenzado) a trabajar (?:en|para) ",
        " yo works at ",
    ),
    worded(
        "dejé dejado",
        r"^ (?:yo )?(?:dejé|he dejado) (?:mi trabajo en|de trabajar en) ",
        " yo ya no works at ",
    ),
    worded(
        "pasó retrasó adelantó trasladó pasa",
        r" se (?:pasó|retrasó|adelantó|trasladó|pasa|ha pasado|ha movido) (?:al?|para el?) ",
        " moved to ",
    ),
    worded(
        "canceló cancelada cancelado canceló",
        r" (?:se canceló|se ha cancelado|está cancelad[oa]|fue cancelad[oa]) ",
        " is off ",
    ),
    worded(
        "sono ho vivo abito lavoro fumo mangio bevo uso prendo studio gioco",
        r"^ (?P<lead>(?:ora |adesso )?)(?P<no>(?:no longer |non )?)"
        r"(?=(?:sono|ho|vivo|abito|lavoro|fumo|mangio|bevo|uso|prendo|studio|gioco) )",
        r" \g<lead>io \g<no>",
    ),
    worded(
        "trasferito trasferita traslocato",
        r" (?:mi sono trasferit[oa]|ho traslocato) a ",
        " io live ",
    ),
    worded(
        "lavorare",
        r"^ (?:io )?(?:ho iniziato|ho cominciato|inizio) a lavorare (?:per|da|alla|in|presso) ",
        " io works at ",
    ),
    worded("annullata annullato", r" (?:è|è stat[oa]) annullat[oa] ", " is off "),
    # Homes in other languages
    worded("bin sind", r" (?:bin|sind) (?:\w+ ){0,2}nach (\w+) (?:um)?gezogen ", r" moved to \1 "),
    worded("ai", r" ai déménagé à ", " moved to "),
    worded(
        "abito vivo", r" (?:io )?(?:ora |adesso )?(?:abito|vivo)(?: ora| adesso)? a ", " io live "
    ),
    worded(
        "ich",
        r"^ ich (?:habe geheiratet|bin (?:jetzt )?verheiratet) ",
        " ich is married ",
    ),
    worded(
        "ich",
        r"^ ich (?:bin (?:jetzt )?geschieden|habe mich scheiden lassen) ",
        " ich is divorced ",
    ),
    worded("ich", r"^ ich bin (?:single|ledig) ", " ich is single "),
    worded("célibataire", r"^ je suis célibataire ", " je is single "),
    worded("marié mariée", r"^ je (?:me )?suis mariée? ", " je is married "),
    worded("divorcé divorcée", r"^ (?:je suis|j ai) divorcée? ", " je is divorced "),
    worded("soltero soltera", r"^ (?:yo )?(?:estoy|soy) solter[oa] ", " yo is single "),
    worded("casé casado casada", r"^ (?:yo )?(?:me casé|estoy casad[oa]) ", " yo is married "),
    worded(
        "divorcié divorciado divorciada",
        r"^ (?:yo )?(?:me divorcié|estoy divorciad[oa]) ",
        " yo is divorced ",
    ),
    worded("single", r"^ (?:io )?sono single ", " io is single "),
    worded("sposato sposata", r"^ (?:io )?(?:mi )?sono sposat[oa] ", " io is married "),
    worded("divorziato divorziata", r"^ (?:io )?(?:ho|sono) divorziat[oa] ", " io is divorced "),
    # Work and days in other languages
    worded("ist", r" ist am (?=\w+(?:tag|woch|abend) |\d)", " ist "),
    worded(
        "trabajo", r" (?:yo )?(?P<no>ya no |no |no longer )?trabajo en ", r" yo \g<no>works at "
    ),
    worded(
        "lavoro",
        r" (?:io )?(?P<no>no longer )?lavoro (?:alla|al|allo|all|per|presso) ",
        r" io \g<no>works at ",
    ),
    worded(
        "verschoben verlegt",
        r" (?:wurde|ist|wird) auf (?:den )?(?P<when>\S+(?: \S+)?) (?:verschoben|verlegt) ",
        r" moved to \g<when> ",
    ),
    worded(
        "reporté reportée déplacé déplacée décalé décalée avancé avancée",
        r" (?:est|a été) (?:reportée?|déplacée?|décalée?|avancée?) (?:à|au) ",
        " moved to ",
    ),
    worded(
        "movió aplazó pospuso cambió",
        r" se (?:movió|aplazó|pospuso|cambió) (?:al?|para el) ",
        " moved to ",
    ),
    worded(
        "spostato spostata rinviato rinviata",
        r" è stat[oa] (?:spostat|rinviat)[oa] a ",
        " moved to ",
    ),
)
IN_OTHER_SCRIPTS: Final = tuple(
    (re.compile(pattern), plain) for pattern, plain in (*_RUSSIAN, *_ARABIC)
)
