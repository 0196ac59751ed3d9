"""Words by which a passage says nothing: function words, filler, and how texts speak of themselves.

"This passage discusses the lighthouse of Almar in detail." has every word of a question about that
lighthouse, and nothing to answer with. What is left of it without the question's words are a frame
("this passage discusses") and filler ("in detail").

Function words come from bm25s, in the languages of `LANGUAGES`; negations and numbers among them do
say something. Which language it is shows in the question's own function words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

LANGUAGES = ("en", "de", "fr", "es", "it", "zh")

_GAP = r"\s+(?:(?:that|which|is|der|die|das|qui|que|che)\s+){0,2}"
_SAYING = {
    "en": """no nor not none never few once before after both now up down out off under over above
        below i me mine we us ours you yours he him his she her hers they them theirs""",
    "de": """nicht nichts kein keine keinem keinen keiner keines ohne einmal dort weg
        ich mich mir wir uns du dich dir er ihn ihm sie ihnen""",
    "fr": "ne pas moi toi lui elle nous vous",
    "es": "no nada ni sin poco yo mí tú él ella nosotros",
    "it": "non io tu lui lei noi voi",
    "zh": "一 几 第 我 您 他 她 咱",
}
"""Function words that may be an answer."""
_FILLER = {
    "en": """actually all also certainly clearly definitely depth detail details everything exactly
        fully indeed just know known length lot lots many much obviously often people quite really
        said say something source sources surely tell thing things thorough thoroughly truly want
        wants written""",
    "de": """alles durchaus eigentlich einfach genau gewiss sicher sicherlich tatsächlich wirklich
        wissen gesagt sagen detail einzelnen ausführlich eingehend ding dinge""",
    "fr": """tout toute tous toutes bien certainement clairement détail détails dire dit vraiment
        savoir chose choses effectivement réellement très""",
    "es": """todo ciertamente claramente cosa cosas decir detalle detalles dicho realmente
        efectivamente saber verdaderamente""",
    "it": """tutto certamente chiaramente cosa cose detto dettaglio dettagli dire davvero
        effettivamente realmente sapere proprio molto""",
    "zh": "很 都 全 真 确 实 详 细 切 知 道 说 事 情 非 常",
}
_NOUN = {
    "en": "(?:article|chapter|description|discussion|document|essay|facts|guide|information|"
    "introduction|note|overview|page|paragraph|passage|piece|post|report|section|summary|text)s?",
    "de": "(?:abschnitt|absatz|artikel|aufsatz|beitrag|bericht|dokument|einführung|fakten|"
    "informationen|kapitel|seite|text|überblick|zusammenfassung)",
    "fr": "(?:article|aperçu|chapitre|document|essai|faits|informations|introduction|page|"
    "paragraphe|passage|rapport|résumé|section|texte)s?",
    "es": "(?:artículo|capítulo|datos|documento|ensayo|hechos|información|informe|introducción|"
    "página|párrafo|pasaje|resumen|sección|texto)s?",
    "it": "(?:articolo|brano|capitolo|documento|fatti|informazioni|introduzione|pagina|paragrafo|"
    "passo|rapporto|riassunto|saggio|sezione|testo)",
    "zh": "(?:本文|文章|这篇文章|这段文字|这段话|一文|资料|信息|介绍)",
}
_SPEAKS = {
    "en": "(?:about|on|of|regarding|concerning|addresses|answers|asks|contains|covers|deals with|"
    "describes|discusses|explains|explores|focuses on|gives|mentions|presents|talks about|tells)",
    "de": "(?:über|von|zu|zum|zur|behandelt|beantwortet|beschreibt|bespricht|enthält|erklärt|"
    "erörtert|erwähnt|handelt von|berichtet)",
    "fr": "(?:sur|de|du|des|concernant|aborde|contient|décrit|discute|explique|mentionne|parle|"
    "présente|répond|traite)",
    "es": "(?:sobre|de|del|acerca|contiene|describe|discute|explica|habla|menciona|presenta|"
    "responde|trata)",
    "it": "(?:su|sul|sulla|di|del|della|contiene|descrive|discute|menziona|parla|presenta|"
    "risponde|spiega|tratta)",
    "zh": "(?:讨论|关于|介绍|描述|解释|说明|谈到|谈论|提到|涉及)",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """How texts of one language say nothing.

    Attributes:
        language: One of `LANGUAGES`.
        empty_words: Casefolded function words and filler.
        pattern: Finds the words by which a text speaks of itself as one about something.
    """

    language: str
    empty_words: frozenset[str]
    pattern: re.Pattern[str]


def frame_of(words: Iterable[str]) -> Frame:
    """Of the language that has most of some casefolded words; the first of equals."""
    words = list(words)

    def shared(frame: Frame) -> int:
        return sum(word in frame.empty_words for word in words)

    return max(_frames(), key=shared)


@lru_cache
def _frames() -> tuple[Frame, ...]:
    from bm25s import stopwords

    function_words = {
        "en": stopwords.STOPWORDS_EN_PLUS,
        "de": stopwords.STOPWORDS_GERMAN,
        "fr": stopwords.STOPWORDS_FRENCH,
        "es": stopwords.STOPWORDS_SPANISH,
        "it": stopwords.STOPWORDS_ITALIAN,
        "zh": stopwords.STOPWORDS_CHINESE,
    }
    frames: list[Frame] = []
    for language in LANGUAGES:
        words = {word.casefold() for word in function_words[language]}
        words.update(_FILLER[language].split())
        gap = "" if language == "zh" else _GAP
        pattern = _NOUN[language] + gap + _SPEAKS[language]
        empty = words.difference(_SAYING[language].split())
        frames.append(Frame(language, frozenset(empty), re.compile(pattern, re.IGNORECASE)))
    return tuple(frames)
