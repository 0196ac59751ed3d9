"""The plain form of what is said: every wording is known by its signs."""

from __future__ import annotations

import pytest

from ecs_plugins.memory import everyday, rewording, statements

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
Karim pushed lunch to 1.
I weigh 80 kilos.
I am down to 78 kg.
We have one kid.
My order 5521 is late.
Flight LH 440 leaves from gate B44.
Mum retired in April.
The budget for the kitchen is 900 euros.
My health insurance is with Allianz.
The interview was rescheduled for Tuesday.
Our site is hosted on Netlify.
I go by Kit now.
Wilco is my favourite band now.
I turned off the heating.
I disabled the feature flag.
I quit my job.
My blood pressure is down to 125.
The release is planned for Tuesday.
We made the repo private.
I haven't smoked for two years.
The server is back up.
I got upgraded to seat 2A.
They rebooked me on BA 214.
Let's do dinner at Sakura.
We refinanced our mortgage with Lloyds.
The PR got merged.
I got promoted to senior developer.
The workshop has a new date May 16.
I filled the fridge.
The printer works again.
The build is green again.
The build is red.
My parcel is being packed.
My order just shipped.
My brother found a job.
My brother lost his job.
My father retired last year.
I went back to eating meat.
I am back from holiday.
I started at KPMG.
My new job is at KPMG.
I work as a nurse at KPMG.
We live in a flat in Camden.
We bought a house in Croydon and moved in.
We made the move to York.
I call York home.
Non lavoro più alla Coop.
Ich arbeite nicht mehr bei Bosch.
Ich habe kein Auto mehr.
J'ai arrêté de fumer.
Dejé de fumar.
Ho smesso di fumare.
Ich habe aufgehört zu rauchen.
J'ai commencé chez Thales.
Das Passwort lautet Igel7.
Das Treffen findet am Donnerstag statt.
Ich habe bei Bosch gekündigt.
Ich habe bei Bosch angefangen.
Das Treffen wurde abgesagt.
Je vis à Nantes.
J'habite maintenant à Lyon.
Je me suis installé à Metz.
Je travaille maintenant pour Thales.
J'ai quitté Renault.
Le dîner est annulé.
Paul a reporté le dîner à samedi.
Me he mudado a Vitoria.
Mi novia se llama Marta.
Nos mudamos a Vitoria.
Empecé a trabajar en Mango.
Dejé mi trabajo en Mango.
La reunión se pasó al jueves.
La cena se canceló.
Bevo vino.
Ho traslocato a Lucca.
Ho iniziato a lavorare per Enel.
La cena è annullata.
""".strip().splitlines()


def test_signs_leave_out_only_what_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known_by_signs = [statements.spoken(sentence) for sentence in SAID]
    as_said = [statements.as_said(sentence) for sentence in SAID]
    every_word = frozenset(" ".join([*known_by_signs, *as_said]).split())
    unsigned = [wording._replace(signs=every_word) for wording in everyday.EVERYDAY.wordings]
    monkeypatch.setattr(everyday, "EVERYDAY", rewording.Rewordings(unsigned))
    assert [statements.spoken(sentence) for sentence in SAID] == known_by_signs


@pytest.mark.parametrize("wording", everyday.EVERYDAY.wordings, ids=lambda each: each.plain.strip())
def test_every_wording_is_met(
    wording: rewording.EverydayWording, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [each for each in everyday.EVERYDAY.wordings if each is not wording]
    with_it = [statements.spoken(sentence) for sentence in SAID]
    monkeypatch.setattr(everyday, "EVERYDAY", rewording.Rewordings(others))
    assert [statements.spoken(sentence) for sentence in SAID] != with_it
