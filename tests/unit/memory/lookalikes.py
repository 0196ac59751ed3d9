"""Pairs of statements of which the second only looks as if it corrected the first, by kind."""

from collections.abc import Iterator
from itertools import islice, product

TOWNS = ["Rome", "Oslo", "Leeds", "Porto", "Kyoto"]
NAMES = ["Ada", "Bob", "Carla", "Dev", "Ines"]
FIRMS = ["Siemens", "Bosch", "Nokia", "Airbus", "Philips"]
NUMBERS = ["11", "25", "38", "47", "52"]

KINDS = {
    "another's home": ("I live in {town}.", "{name} moved to {town2}."),
    "a wish": ("I live in {town}.", "I would like to live in {town2}."),
    "the past": ("I live in {town}.", "I lived in {town2} as a child."),
    "a question": ("I live in {town}.", "Do you live in {town2}?"),
    "a visit": ("I live in {town}.", "I was in {town2} with {name}."),
    "a second one": ("My dog is called {name}.", "My other dog is called {name2}."),
    "several of a kind": ("My friend is {name}.", "My friend is {name2}."),
    "another's work": ("I work at {firm}.", "My sister works at {firm2}."),
    "side work": ("I work at {firm}.", "I also teach at {firm2}."),
    "another room": ("Room {number} costs 50 euros.", "Room {number2} costs 60 euros."),
    "another day": ("I have a meeting at {number}.", "I have a meeting at {number2}."),
    "a purchase": ("I bought {number} apples.", "I bought {number2} apples."),
    "a nickname": ("My name is {name} {town}.", "My name is {name2} to friends."),
    "a description": ("My address is {number} {town} Road.", "My address is public."),
    "another number": ("My phone number is 555-{number}.", "{name}'s number is 555-{number2}."),
    "another plan": ("The trip to {town} is in May.", "The trip to {town2} is cancelled."),
    "another allergy": ("I am allergic to {town} nuts.", "I am not allergic to {town2} cheese."),
    "hearsay": ("The code is {number}.", "{name} said the code is {number2}."),
    "a supposition": ("I live in {town}.", "If I moved to {town2} I would ski more."),
    "another machine": ("My laptop is a {firm}.", "My old laptop is a {firm2}."),
    "another speaker": ("{name}: I live in {town}.", "{name2}: I moved to {town2}."),
    "another title": ("The film is about {town}.", "The film is by {name}."),
    "another version": ("We use {firm} 14 in production.", "We use {firm} 16 in staging."),
    "a taste": ("I like {town}.", "I like {town2}."),
    "Russian": ("Я живу в {town}.", "Мой брат переехал в {town2}."),
    "Arabic": ("أعيش في {town}.", "سافرت إلى {town2}."),
}


def pairs(kind: str, count: int) -> Iterator[tuple[str, str]]:
    """So many pairs of a kind, 25 at most."""
    older, newer = KINDS[kind]
    different = [(one, two) for one, two in product(range(5), repeat=2) if one != two]
    for one, two in islice(different, count):
        words = {
            "town": TOWNS[one],
            "town2": TOWNS[two],
            "name": NAMES[one],
            "name2": NAMES[two],
            "firm": FIRMS[one],
            "firm2": FIRMS[two],
            "number": NUMBERS[one],
            "number2": NUMBERS[two],
        }
        yield older.format(**words), newer.format(**words)
