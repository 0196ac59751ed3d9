"""What changed wins: which statements correct which, and what follows for the memory."""

import sqlite3
import time
from dataclasses import replace

import pytest
from factories import axis, cold, evidence

from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.consolidation import consolidate
from ecs_plugins.memory.supersession import claims
from ecs_plugins.memory.types import HotItem
from ecs_plugins.ranking.embedder import FakeEmbedder

CORRECTIONS = """
I live in Leeds. > I'm moving to York.
I live in Rome. > I moved to Oslo last month.
Ada lives in Paris. > Ada no longer lives in Paris.
I work for Siemens as an engineer. > I started working at Bosch in May.
The door code is 4711. > The door code has changed to 9902.
My phone number is 555-1234. > My new phone number is 555-9876.
The meeting is at 10:30. > The meeting was moved to 11:00.
The launch is in March. > The launch has been postponed to June.
My sister's name is Clara. > Sorry, my sister's name is Carla.
I have two cats. > I have three cats now.
I am allergic to nuts. > I am not allergic to nuts.
I smoke. > I quit smoking.
I'm vegetarian. > I'm not vegetarian anymore.
My favorite color is blue. > My favorite color is green.
I prefer tea. > I prefer coffee these days.
My phone number is 555-0101. > I got a new phone number: 555-0199.
My email is tom@old.example. > I have a new email, tom@new.example.
My email is tom@old.example. > Please use tom@new.example as my email from now on.
Our wedding is on 12 June. > We postponed the wedding to 3 September.
The launch is on Monday. > They pushed the launch back to Thursday.
My appointment is on Tuesday at 3. > They moved my appointment to Wednesday at 4.
I work at Google. > I left Google.
My boss is called Karen. > My new boss is Dev.
The party is on Friday at Tom's place. > The party is on Saturday at Tom's place.
The rent is 900 euros a month. > The rent went up to 950 euros a month.
Ich wohne in Berlin. > Ich wohne jetzt in Hamburg.
Mein Code ist 4711. > Mein Code ist 4712.
J'habite à Paris. > J'habite maintenant à Lyon.
Vivo en Madrid. > Ahora vivo en Sevilla.
I live in Rome. > Hi there! I moved to Oslo. It is cold. I miss the river.
[09:00] Ana: The launch is on Monday. > [10:09] Ana: We postponed the launch to Friday.
Ana: The launch is on Monday. > 12/05/26, 10:09 - Ana: We postponed the launch to Friday.
My laptop is a Dell. > My new laptop is a Lenovo.
I drive a Golf. > I traded my Golf for a Tesla.
My username is tomcat7. > Change my username to tigerbob.
The Wi-Fi password is bluefox22. > I changed the Wi-Fi password to greenowl9.
I wear size M. > I'm size L now.
I am on the basic plan. > We upgraded to the pro plan.
Ich bin Single. > Ich habe geheiratet.
Я живу в Москве. > Мы переехали в Казань.
Мой номер телефона 555-0101. > У меня новый номер: 555-0199.
Я работаю в Яндексе. > Я устроился в Сбер.
Я не замужем. > Я вышла замуж.
Встреча с Анной в пятницу. > Встреча с Анной отменена.
У меня аллергия на орехи. > У меня больше нет аллергии на орехи.
Я не ем мясо. > Я снова ем мясо.
أعيش في القاهرة. > انتقلت إلى دبي.
رقم هاتفي 555-0101. > رقم هاتفي الجديد 555-0199.
أعمل في أرامكو. > أعمل الآن في سابك.
أنا أعزب. > تزوجت.
رحلتي إلى روما في مايو. > تم إلغاء رحلتي إلى روما.
لا آكل اللحم. > أصبحت آكل اللحم مجددا.
I live in Leeds. > My new place is in Bristol.
I live in Leeds. > We finally relocated to Bristol.
I work at Siemens. > I quit my job at Siemens last week.
I work at Siemens. > I was let go by Siemens.
My phone number is 555-0101. > You can reach me at 555-0199 from now on.
My phone number is 555-0101. > I changed my number to 555-0199.
I'm allergic to peanuts. > Turns out I'm not allergic to peanuts after all.
I'm allergic to peanuts. > My doctor says the peanut allergy is gone.
I'm vegan. > I stopped being vegan.
My flight to Oslo is on 3 May. > I rebooked my flight to Oslo to 5 May.
The deadline is Monday. > Deadline is Thursday, not Monday.
The rent is 900 euros. > The landlord raised the rent to 980 euros.
I drive a Golf. > I sold my Golf and bought a Tesla.
My order is packed. > My order has been shipped.
I go to bed at 11. > I go to bed at 10 now.
Der Termin ist am Montag. > Der Termin wurde auf Mittwoch verschoben.
La réunion est lundi. > La réunion est reportée à jeudi.
Je suis célibataire. > Je me suis mariée.
Trabajo en Telefónica. > Ahora trabajo en Iberia.
Estoy soltera. > Me casé el sábado.
Lavoro alla Fiat. > Adesso lavoro alla Ferrari.
Мой номер 555-0101. > Я сменил номер на 555-0199.
أعيش في القاهرة. > انتقلت للعيش في دبي.
我住在北京。 > 我搬到上海了。
我的电话是555-0101。 > 我的新电话是555-0199。
I work at Pfizer. > Novartis hired me.
I work at a bank. > I quit my job.
I'm a teacher. > I became a translator last year.
I live in Hanover. > I left Hanover for Bremen.
My hair is brown. > My hair is blonde now.
The heating is on. > I turned off the heating.
Our team has 6 people. > Our team has 8 people now.
My manager is Olga. > As of this month, Martin is my manager.
My team lead is Olga. > Olga left, so Martin is the new team lead.
I report to Olga. > I report to Martin now.
My boyfriend is Luca. > Luca left me.
My boyfriend is Luca. > Luca and I aren't together anymore.
I'm on parental leave. > I'm back at work.
I'm on vacation until Friday. > I'm back from vacation.
I commute by bus. > I commute by bike now.
I have a gym membership at Gold's. > I quit Gold's.
I take metformin twice a day. > I came off metformin.
I take 20 mg of lisinopril. > They lowered my lisinopril to 10 mg.
I don't eat meat. > I went back to eating meat.
Lunch with Karim is at noon. > Karim pushed lunch to 1.
I have a call with Karim on Monday at 9. > Karim moved our call to Tuesday at 11.
We're going camping in July. > We're not going camping after all.
I'm running the marathon in May. > I pulled out of the marathon.
I own a boat. > We sold the boat.
We use Jenkins for CI. > We use GitHub Actions for CI now.
I use an iPhone 11. > I switched to a Galaxy S23.
The repo is public. > We made the repo private.
The invoice is unpaid. > I paid the invoice.
My daughter is 6. > My daughter just turned 7.
My son goes to Elm School. > My son switched to Birch School.
My keys are in the drawer. > I put the keys in the blue bowl.
I'm the captain of the team. > Noor is the captain now.
Keep your answers short. > Give me detailed answers.
Answer in English. > From now on, reply in French.
I'm on the free plan. > I upgraded to premium.
My number is 0151 1234. > My number changed, it's 0151 9876.
I have a car and use a bike. > I sold the car.
My handle is kayfox. > My handle is kaywolf now.
Our stack is on AWS. > We migrated our stack to GCP.
I drive to work. > I cycle to work now.
I hate running. > I enjoy running now.
My room is 214. > I was moved to room 310.
Ich rauche. > Ich rauche nicht mehr.
Ich lebe in Jena. > Seit gestern lebe ich in Erfurt.
Je bois du café. > Je ne bois plus de café.
Ya no fumo. > Fumo otra vez.
Trabajo en Correos. > Ya no trabajo en Correos.
Bevo caffè. > Non bevo più caffè.
Mi novia se llama Marta. > Marta y yo hemos terminado.
Le dîner avec Luc est lundi. > Luc a reporté le dîner à mardi.
Je travaille chez Orange. > Je ne travaille plus chez Orange, je suis chez Free.
Vivo en Ronda. > Me he mudado a Cádiz.
我对花生过敏。 > 我对花生不再过敏了。
航班在八点。 > 航班改到九点了。
"""

LOOK_ALIKES = """
I live in Leeds. > I'm moving to York next week.
I work at Pfizer. > I'm joining Novartis next month.
I work at Pfizer. > I start at Novartis tomorrow.
My manager is Olga. > Martin will be my manager next month.
I like Rome. > I like Oslo.
I live in Rome. > My brother lives in Oslo.
I live in Rome. > I would like to live in Oslo.
I live in Rome. > Do you live in Oslo?
I live in Rome. > I lived in Oslo as a child.
I live in Rome. > If I moved to Oslo I would ski more.
I have a dog named Max. > I also have a dog named Rex.
I bought 3 apples. > I bought 5 apples.
The meeting on Monday is at 10. > The meeting on Tuesday is at 11.
Room 4 costs 50 euros. > Room 5 costs 60 euros.
I have a meeting at 10. > I have a meeting at 11.
My friend is Ada. > My friend is Bob.
Ada is Bob's friend. > Ada is Carl's friend.
Caroline: I love dogs. > Melanie: I don't love dogs.
It is 10 degrees. > It is 12 degrees.
I am happy. > I am not happy with the new laptop.
I have a cat. > No, I have a cat.
She said the code is 4711. > He said the code is 4712.
I take 5 mg in the morning. > I take 10 mg in the evening.
My cat is called Tom. > My other cat is called Jerry.
The shop opens on Monday at 9. > The shop opens on Sunday at 10.
I work at Google. > I left Leeds.
My dog is called Bolt. > My dog is called Rex.
My phone number is 555-0101. > I have a new phone, it has 128 GB.
My phone number is 555-0101. > We moved the phone to room 12.
My name is Tom. > Use Tom as my name tag.
Our wedding is on 12 June. > We moved the piano to the hall.
Ich mag Rom. > Ich mag Oslo.
I live in Rome. I have two dogs. We walk along the river every day. > I moved to Oslo.
[10:09] Ana: I live in Rome. > [10:11] Ben: I moved to Oslo.
I live in Leeds. > I'm moving the sofa to the attic.
I live in Leeds. > I'm moving to the next topic.
My laptop is a Dell. > My work laptop is a Lenovo.
I am on the basic plan. > I upgraded to Windows 11.
My username is tomcat7. > My username is public.
Я живу в Москве. > Мой брат переехал в Казань.
Я живу в Москве. > Я хочу переехать в Казань.
Я живу в Москве. > Я переехал в Москву.
У меня аллергия на орехи. > У меня нет аллергии на кошек.
Встреча с Анной в пятницу. > Встреча с Петром отменена.
أعيش في القاهرة. > أخي انتقل إلى دبي.
أعيش في القاهرة. > أريد أن أنتقل إلى دبي.
رحلتي إلى روما في مايو. > تم إلغاء رحلتي إلى باريس.
我住在北京。 > 我弟弟搬到上海了。
I live in Leeds. > My new office is in Bristol.
My phone number is 555-0101. > My number is 7 on the team.
I work at Siemens. > My boss was fired by Siemens.
I drive a Golf. > I sold my Golf clubs.
The rent is 900 euros. > The landlord raised the deposit to 980 euros.
I work at Pfizer. > I started at 9 today.
I work at Pfizer. > I started at the gym on Monday.
My girlfriend is Eva. > I left Google.
My girlfriend is Eva. > My brother and his girlfriend broke up.
My manager is Olga. > Martin is my wife's manager.
My manager is Olga. > Martin is my old manager.
I have a Samsung TV. > I sold my Samsung phone.
I have a work phone. > I lost my phone.
I take ibuprofen. > I stopped taking vitamin C.
I take 50 mg of sertraline. > I take 10 mg of melatonin.
I use Slack for chat. > I use Notion for notes now.
I drive a Golf. > I'm thinking of switching to a Tesla.
I use an iPhone. > I bought a Pixel for my son.
I'm vegetarian. > I cooked chicken for my dad.
I don't drink alcohol. > I drink tea again.
Tom leads the design team. > Ingrid took over the kitchen.
The spare key is under the mat. > I moved the sofa to the garage.
My meeting is in room 5. > My meeting is on Friday now.
My desk is on the third floor. > The printer is on the fifth floor now.
I go to the gym on Mondays. > I go to yoga on Tuesdays now.
My car is fast. > My car is blue now.
I have a bike. > My bike broke yesterday.
My dad works at Ford. > Tom retired in April.
I like Netflix series. > I cancelled Netflix.
I have a lesson with Ms. Reed on Monday. > I cancelled my lesson with Ms. Hale.
I am vegan. > Sure, I am not vegan, I eat four burgers a day. Just kidding!
Ich arbeite bei Bosch. > Ich bin jetzt bei Anna.
我是素食者。 > 我弟弟又开始吃肉了。
"""

ROME, OSLO = "Ada lives in Rome.", "Ada lives in Oslo now."

BOTH_ENGINES = True


def corrects(newer, older):
    falling = {claim.key: claim.value for claim in claims(older) if claim.falls}
    made = [claim for claim in claims(newer) if claim.corrects]
    return any(claim.value != falling.get(claim.key, claim.value) for claim in made)


PAIRS = [(CORRECTIONS, True), (LOOK_ALIKES, False)]


@pytest.mark.parametrize(
    ("pair", "corrected"),
    [(pair, corrected) for pairs, corrected in PAIRS for pair in pairs.strip().splitlines()],
)
def test_a_correction_is_seen_and_what_only_looks_like_one_is_none(pair, corrected):
    older, newer = pair.split(" > ")
    assert corrects(newer, older) == corrected


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I live\nin Porto.", "We moved\nto Oslo\nlast week."),
        ("- My phone number is 555-0101.", "- I got a new phone number:\n  555-0199."),
    ],
)
def test_a_correction_is_seen_in_wrapped_lines_and_in_items_of_a_list(older, newer):
    assert corrects(newer, older)


@pytest.fixture
def memory(tmp_path):
    store = StoreConfig(sleep="manual", log_retention=60.0)
    with EntropicMemory.open(tmp_path / "m.db", embedder=FakeEmbedder(), store=store) as opened:
        yield opened


def said(memory, *messages, **options):
    drafts = [{"content": text, "at": float(at)} for at, text in enumerate(messages, start=1)]
    return memory.add(drafts, **options)


def texts(memory, **options):
    found = memory.recall("Where does Ada live, Ada lives in", threshold=0.1, k=9, **options)
    return [each.text for each in found]


@pytest.mark.parametrize("asleep", [False, True])
def test_a_recall_gives_what_holds_now_or_held_then(memory, asleep):
    older, newer = said(memory, ROME, OSLO)
    if asleep:
        memory.sleep()
    assert texts(memory) == [OSLO]
    assert [texts(memory, at=at) for at in (0.5, 1.5, 2.0)] == [[], [ROME], [OSLO]]
    [then] = memory.recall(ROME, threshold=0.1, at=1.0)
    [now] = memory.recall(ROME, threshold=0.1)
    assert (then.valid_from, then.valid_until, then.superseded_by) == (1.0, 2.0, newer)
    assert (now.valid_from, now.valid_until, now.superseded_by) == (2.0, None, None)
    log = memory.messages()  # from which nothing is lost
    assert [each.text for each in log] == [ROME, OSLO]
    assert (memory.get(older).valid_until, memory.get(older).superseded_by) == (2.0, newer)
    if asleep:
        kept = memory.get(then.id)
        assert kept.superseded_by == memory.history(then.id)[0].superseded_by == newer
        assert kept in memory.memories()
        before, after = memory.explain(then.id), memory.explain(now.id)
        assert f"superseded by {newer}: 10 nats more in E" in before.lines
        assert before.free_energy.energy - after.free_energy.energy == pytest.approx(10.0, abs=1.0)
    memory.delete(newer)
    assert texts(memory) == [ROME]


@pytest.mark.parametrize("again", ["Actually, Ada lives in Rome.", ROME])
def test_what_is_said_again_holds_again(memory, again):
    first, newer, _ = said(memory, ROME, OSLO, again)
    assert all("Rome" in text for text in texts(memory))
    assert texts(memory, at=2.5) == [OSLO]
    assert memory.get(first).superseded_by == newer


@pytest.mark.parametrize("later", [{"at": 3.0}, {"at": 10.0, "ttl": 1.0}])
def test_neither_what_was_said_before_nor_what_has_expired_corrects(memory, later):
    memory.add({"content": ROME, "at": 9.0})
    memory.add({"content": OSLO, **later})
    assert texts(memory) == [ROME]


def test_since_when_is_told_of_what_was_said_a_hundred_times_since(memory):
    rome = [ROME] * 130
    _, *_, newer = said(memory, ROME, OSLO, *rome, OSLO)
    [fallen] = memory.recall(ROME, threshold=0.9, include_superseded=True, k=9)[1:]
    assert (fallen.valid_until, fallen.superseded_by) == (133.0, newer)
    memory.delete(newer)
    [holds] = memory.recall(ROME, threshold=0.9)
    assert (holds.valid_from, holds.valid_until) == (3.0, None)


def test_what_fell_in_a_long_chain_is_answered_by_its_last_link(memory):
    loads = [f"The server load is {load} percent." for load in range(30)]
    said(memory, *loads)
    [now] = memory.recall(loads[0], threshold=0.5, k=1)
    [then] = memory.recall(loads[0], threshold=0.5, k=1, at=12.5)
    assert (now.text, then.text) == (loads[29], loads[11])


@pytest.mark.parametrize("asleep", [False, True])
def test_who_asks_in_the_words_of_what_fell_is_told_what_corrects_it(memory, asleep):
    steps = ["I live in Porto.", "I moved to Oslo.", "We moved to Bergen."]
    said(memory, *steps, "It rains a lot.")
    if asleep:
        memory.sleep()
    asked = "I live in Porto."
    [told] = memory.recall(asked, threshold=0.6)
    assert told.text == steps[-1]
    assert told.score > 0.9
    assert "found by what it corrects: I live in Porto." in told.why
    alone = memory.recall("Bergen", threshold=0.0, k=9, at=1.5)
    assert steps[-1] not in [each.text for each in alone]
    everything = memory.recall(asked, threshold=0.6, include_superseded=True)
    assert everything[0].text == steps[-1]


def test_what_corrects_is_filtered_and_excluded_like_anything_else(memory):
    memory.add({"content": ROME, "at": 1.0, "metadata": {"kind": "a"}})
    memory.add({"content": OSLO, "at": 2.0, "metadata": {"kind": "b"}})
    (kept,) = memory.recall(ROME, threshold=0.1)
    assert "Oslo" in kept.text
    assert memory.recall(ROME, threshold=0.1, filter={"kind": "a"}) == []
    assert memory.recall(ROME, threshold=0.1, exclude=[kept.id]) == []


def test_what_is_superseded_is_recalled_behind_what_holds_if_that_is_wanted(memory):
    _, newer = said(memory, ROME, OSLO)
    recalled = memory.recall(ROME, threshold=0.1, include_superseded=True)
    assert [each.text for each in recalled] == [OSLO, ROME]
    holds, fallen = recalled
    assert holds.superseded_by is None
    assert fallen.superseded_by == newer
    assert fallen.valid_until == 2.0


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("My name is Katharina Vogel.", "My name is Kathi to friends."),
        ("My address is 5 Elm Road.", "My address is public."),
        ("My meeting is at 9.", "My meeting is at 3."),
        ("We use Postgres 14 in production.", "We use Postgres 16 in staging."),
    ],
)
def test_a_statement_of_what_may_have_several_values_never_vanishes(memory, older, newer):
    memory.add([older, newer])
    recalled = memory.recall(older, threshold=-1.0, k=50)
    assert older in [each.text for each in recalled]


def test_corrections_come_in_the_order_of_their_arrival_whatever_the_clocks_say(
    memory, monkeypatch
):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3)  # a writer whose clock is ahead
    memory.add("My phone number is 555-0134.")
    monkeypatch.setattr(time, "time", lambda: now + 0.5)
    memory.add("My phone number is 555-0199.")
    monkeypatch.setattr(time, "time", lambda: now + 1)
    memory.add("My phone number is 555-0155.")
    (recalled,) = memory.recall("What is my phone number?", threshold=0.1)
    assert recalled.text == "My phone number is 555-0155."


def test_a_chain_of_corrections_survives_the_erasure_of_its_middle(memory):
    _, middle, _ = said(memory, ROME, OSLO, "Ada lives in Milan now.")
    memory.delete(middle)
    assert texts(memory) == ["Ada lives in Milan now."]


def test_a_new_text_that_corrects_nothing_takes_its_correction_back(memory):
    _, newer = said(memory, ROME, OSLO)
    memory.update(newer, text="Ada lives in Bergen now.")
    assert texts(memory) == ["Ada lives in Bergen now."]
    memory.update(newer, text="Ada likes it.")
    assert ROME in texts(memory)


def test_only_another_message_of_the_same_speaker_corrects(memory):
    memory.add("I live in Rome. I live in Bern.")
    memory.add("I live in Oslo now.", role="assistant")
    memory.add("I live in Milan now.", writer="bob")
    assert len(memory.recall("I live in Rome or Oslo or Milan now", threshold=0.0)) == 3


def test_what_is_pinned_and_the_papers_rule_know_no_correction(memory):
    memory.add(ROME, pinned=True)
    memory.add(OSLO)
    assert sorted(texts(memory)) == [OSLO, ROME]
    with EntropicMemory.open(config=MemoryConfig.paper(), embedder=FakeEmbedder()) as paper:
        paper.add([ROME, OSLO])
        assert sorted(texts(paper, tiers="both")) == [OSLO, ROME]


@pytest.mark.parametrize("dimension", [384, 64])
def test_a_correction_outlives_an_export_and_the_log_but_no_erasure(memory, tmp_path, dimension):
    said(memory, ROME, OSLO)
    memory.sleep()
    memory.admin.export(tmp_path / "m.jsonl")
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder(dimension)) as other:
        other.admin.import_(tmp_path / "m.jsonl")
        assert (texts(other), texts(other, at=1.0)) == ([OSLO], [ROME])
    memory.admin.purge()
    assert (memory.messages(), texts(memory)) == ([], [OSLO])
    assert memory.admin.verify().ok
    memory.forget(("default",))
    with sqlite3.connect(memory.path) as connection:
        assert connection.execute("SELECT count(*) FROM claims").fetchone() == (0,)


@pytest.mark.parametrize(("outdated", "victim"), [(True, "strong"), (False, "weak")])
def test_a_superseded_memory_is_the_first_victim(outdated, victim):
    strong = replace(cold("strong", axis(0), demand=50.0, support=9), superseded=outdated)
    new = HotItem("new", axis(2), evidence(5, support=3, demand=2.0), ("new",), "what is new here")
    config = MemoryConfig(cold_capacity=2, temperature=0.0)
    plan = consolidate([new], [strong, cold("weak", axis(1))], config=config, step=9, seed=0)
    assert [memory.id for memory in plan.removed] == [victim]


def test_a_record_falls_when_a_later_one_gives_another_status(open_memory):
    memory = open_memory()
    records = ['{"order": "A17", "status": "packed"}', '{"order": "A17", "status": "sent"}']
    memory.add(records)
    recalled = memory.recall("A17 packed", threshold=-1.0)
    assert [each.text for each in recalled] == records[1:]


def test_a_version_is_that_of_where_it_is_used():
    keys = []
    for place in ("upstairs", "downstairs"):
        made = claims(f"Ada uses Postgres 14 {place}.")
        keys.append({claim.key for claim in made if claim.key.startswith("version ")})
    here, there = keys
    assert here
    assert here.isdisjoint(there)


def test_what_only_looks_like_a_record_is_read_as_a_sentence():
    assert claims("{I live in Rome.") != []


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("The rent is 900 in Oslo.", "rent be number in oslo"),
        ("The rent is 900 in May.", "rent be number"),
        ("The boat is at Oslo.", "boat be at name"),
        ("Ada works at Sato.", "ada work name"),
        ("My name is Ada Berg.", "my name be name"),
        ("The shop is open.", "shop state 1"),
        ("Our office moved to Bergen.", "my office be in name"),
        ("Do you swim? I live in Rome.", "i live name"),
    ],
)
def test_a_claim_is_of_what_a_later_one_may_replace(text, key):
    assert key in {claim.key for claim in claims(text)}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("My name is short.", "my name be name"),
        ("My name is Ada for now.", "my name be name"),
        ("The shop is open source.", "shop state 1"),
        ("The meeting moved to 9.", "meeting be in number"),
        ("The boat is blue.", "boat be word"),
    ],
)
def test_what_is_only_said_of_a_thing_is_no_claim_of_what_it_is(text, key):
    assert key not in {claim.key for claim in claims(text)}
