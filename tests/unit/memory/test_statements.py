"""The plain form of what is said: every wording is known by its signs."""

from __future__ import annotations

import pytest

from ecs_plugins.memory import everyday, statements

SAID = """
The test shows that I am immune.
It turned out that the shop is closed.
They have changed the door code to 4711.
Change my seat to 12A.
My new phone is a Nokia.
I ride a Vespa.
We swapped my Golf for a bike.
I wear a size 43.
We are on the basic plan.
I just upgraded to the pro plan.
They postponed our dinner to Friday.
Our I just got a new phone number is 5551234.
I have a new number 5551234.
Use Berlin as my home address from now on.
The price rose from 3 to 4.
I outgrew my peanut allergy.
My son has a nut allergy.
I took up running again.
Anna and I got divorced.
Anna and I broke up.
She got married in June.
I was laid off by Siemens.
He was hired by Siemens.
I have left Siemens.
Call me Kathi.
Ich bin im Mai nach Berlin umgezogen dieses Jahr.
J'ai déménagé à Lyon.
Mi sono trasferita a Roma.
Vivo a Roma.
Ich bin jetzt verheiratet.
Ich habe mich scheiden lassen.
Ich bin ledig.
I quit my job at Siemens last week.
The deadline is Thursday, not Monday.
My number is 555-0199.
You can reach me at 555-0199 from now on.
I get up at 6.
My parcel has been delivered.
The peanut allergy is gone.
I stopped being vegan.
I moved into a flat in Cardiff.
We have settled in Bristol.
My new place is in Bristol.
Je suis célibataire.
Je me suis mariée.
J'ai divorcé.
Estoy soltera.
Me casé el sábado.
Me divorcié.
Sono single.
Mi sono sposata.
Ho divorziato.
Der Termin ist am Montag.
Trabajo en Iberia.
Lavoro alla Fiat.
Der Termin wurde auf Mittwoch verschoben.
La réunion est reportée à jeudi.
La reunión se aplazó al jueves.
La riunione è stata spostata a giovedì.
""".strip().splitlines()


def test_signs_leave_out_only_what_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known_by_signs = [statements.spoken(sentence) for sentence in SAID]
    every_word = frozenset(" ".join([*known_by_signs, *SAID]).casefold().split())
    unsigned = [wording._replace(signs=every_word) for wording in everyday._EVERYDAY]
    monkeypatch.setattr(everyday, "_EVERYDAY", unsigned)
    assert [statements.spoken(sentence) for sentence in SAID] == known_by_signs


@pytest.mark.parametrize("wording", everyday._EVERYDAY, ids=lambda each: each.plain.strip())
def test_every_wording_is_met(
    wording: everyday._EverydayWording, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [each for each in everyday._EVERYDAY if each is not wording]
    with_it = [statements.spoken(sentence) for sentence in SAID]
    monkeypatch.setattr(everyday, "_EVERYDAY", others)
    assert [statements.spoken(sentence) for sentence in SAID] != with_it
