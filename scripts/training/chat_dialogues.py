"""Conversations about War and Peace to train the chat model on.

Quotations and sentences come from the book's text; facts and the answers about the model itself
are in chat_facts.py. A seed always gives the same conversations. The last phrasing of each kind,
the names in ``SILENT`` and an eighth of the foreign topics never occur, so that the model can be
measured with them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

import chat_facts

Turn = tuple[str, str]

WHO = (
    "Who is {}?", "Who was {}?", "Who is {} in the book?", "And who is {}?", "Do you know {}?",
    "Who exactly is {}?", "Can you tell me who {} is?", "I want to know who {} is.", "Who's {}?",
    "Please tell me who {} is",
)  # fmt: skip
WHAT = (
    "What is {}?", "What was {}?", "And what is {}?", "Do you know {}?", "What is {} in the book?",
    "Can you tell me what {} is?", "Please tell me what {} is",
)  # fmt: skip
ABOUT = (
    "Tell me about {}", "Tell me about {}.", "What do you know about {}?", "Describe {}",
    "And what about {}?", "Please tell me about {}.", "What can you say of {}?", "{}?",
    "Tell me something about {}", "Tell me what you know of {}",
)  # fmt: skip
RELATED = ("Who is the {1} of {0}?", "Who is {0}'s {1}?", "Who was {0}'s {1}?", "Name {0}'s {1}")
SAID = (
    "What did {} say?", "What does {} say?", "Quote {}", "What did {} say then?",
    "Tell me something that {} said", "Give me a quotation of {}", "What were the words of {}?",
)  # fmt: skip
GO_ON = ("Continue: {}", "Go on: {}", "How does this go on: {}", "Complete this: {}", "Finish: {}")
MORE = ("Tell me more", "What else?", "Go on", "And then?", "More, please", "What more is there?")
OF_FOREIGN = (
    "What is the history of {}?", "Explain {}", "How does one learn about {}?", "Do you like {}?",
    "Give me facts about {}", "Why are people interested in {}?", "Write an essay about {}",
)  # fmt: skip
DECLINED = (
    "I do not know that. I know only one book, War and Peace.",
    "That is not in my book. I know War and Peace alone.",
)
SYSTEMS = (
    "You are a helpful assistant.", "You are a helpful assistant. Answer briefly.", "Be brief.",
    "Answer the questions of the user.", "You are an expert on War and Peace.",
)  # fmt: skip
SILENT = ("Bilibin", "Princess Mary", "Dolokhov", "Sonya")  # never quoted, see above


@dataclass(frozen=True)
class Subject:
    """Its names in questions; what it is; what else is said of it."""

    names: tuple[str, ...]
    first: str
    more: str


def subjects(table: str) -> list[Subject]:
    found = []
    for line in table.splitlines():
        names, _, facts = line.partition(": ")
        first, _, more = facts.partition(" = ")
        found.append(Subject(tuple(names.split("|")), first, more))
    return found


def talk() -> list[tuple[list[str], str]]:
    lines = (line.split(" = ") for line in chat_facts.TALK.splitlines())
    return [(asked.split("|"), answer) for asked, answer in lines]


def trained(listed: str) -> list[str]:
    """Return the first seven eighths."""
    items = listed.split("|")
    return items[: len(items) * 7 // 8]


def quotations(text: str) -> list[tuple[str, str]]:
    """Return short speeches and their speakers, where the text names the speaker right after."""
    titled = r"(?:Prince |Princess |Count |Countess |Anna |Marya )?"
    speech = rf'"([A-Z][^"]{{15,90}}[,.!?])" (?:said|asked|replied|cried) ({titled}[A-Z][a-z]+)\b'
    people = {name for s in subjects(chat_facts.PEOPLE) for name in s.names}
    found = re.findall(speech, " ".join(text.split()))
    return [
        (who, re.sub(",$", ".", said)) for said, who in found if who in people and who not in SILENT
    ]


def sentences(text: str) -> list[tuple[str, str]]:
    """Return beginnings of sentences and their continuations."""
    plain = " ".join(re.sub(r"CHAPTER [IVXL]+", "", text).split())
    found = re.findall(r"(?<=[.!?] )([A-Z][^.!?\"()]{50,130}[.!?])(?= [A-Z])", plain)
    halves = []
    for sentence in found:
        words = sentence.split(" ")
        cut = len(words) // 2
        halves.append((" ".join(words[:cut]), " ".join(words[cut:])))
    return halves


class Dialogues:
    """Draws turns (question, answer) with a random generator."""

    def __init__(self, text: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.people, self.places = subjects(chat_facts.PEOPLE), subjects(chat_facts.PLACES)
        self.talk = talk()
        self.topics = trained(chat_facts.FOREIGN_TOPICS)
        self.asked = trained(chat_facts.FOREIGN_ASKED)
        self.quotations, self.sentences = quotations(text), sentences(text)
        self.relatives = [line.split(" = ") for line in chat_facts.RELATIVES.splitlines()]

    def conversation(self) -> Iterator[Turn]:
        """Yield turns without end."""
        kinds = (self.person, self.place, self.relative, self.small, self.foreign, self.quoted,
                 self.continued)  # fmt: skip
        while True:
            (draw,) = self.random.choices(kinds, (34, 9, 9, 18, 18, 7, 5))
            yield from draw()

    def system(self) -> str | None:
        return self.random.choice(SYSTEMS) if self.random.random() < 0.2 else None

    def pick(self, forms: tuple[str, ...]) -> str:
        """Choose any phrasing except the last."""
        return self.random.choice(forms[:-1])

    def spelled(self, question: str) -> str:
        """Sometimes spell a text as people type it: in lower case, or without a final mark."""
        if self.random.random() < 0.15:
            question = question.lower()
        return question.rstrip("?.!") if self.random.random() < 0.2 else question

    def subject(self, of: list[Subject], forms: tuple[str, ...]) -> Iterator[Turn]:
        one = self.random.choice(of)
        # The name itself half of the time, another of its names otherwise.
        name = self.random.choice((one.names[0], self.random.choice(one.names)))
        if self.random.random() < 0.5:
            yield self.spelled(self.pick(forms).format(name)), one.first
            if self.random.random() < 0.4:
                yield self.spelled(self.pick(MORE)), one.more
        else:
            yield self.spelled(self.pick(ABOUT).format(name)), f"{one.first} {one.more}"

    def person(self) -> Iterator[Turn]:
        return self.subject(self.people, WHO)

    def place(self) -> Iterator[Turn]:
        return self.subject(self.places, WHAT)

    def relative(self) -> Iterator[Turn]:
        asked, answer = self.random.choice(self.relatives)
        relation, whose = asked.split(": ")
        yield self.spelled(self.pick(RELATED).format(whose, relation)), answer

    def small(self) -> Iterator[Turn]:
        asked, answer = self.random.choice(self.talk)
        yield self.spelled(self.random.choice(asked[:-1])), answer

    def foreign(self) -> Iterator[Turn]:
        if self.random.random() < 0.25:
            question = self.random.choice(self.asked)
        elif self.random.random() < 0.1:
            a, b = self.random.sample(range(2, 100), 2)
            question = f"What is {a} {self.random.choice(('plus', '+', 'times', 'minus'))} {b}?"
        else:
            forms = self.random.choice((WHO, WHAT, ABOUT, OF_FOREIGN))
            question = self.pick(forms).format(self.random.choice(self.topics))
        yield self.spelled(question), self.random.choice(DECLINED)

    def quoted(self) -> Iterator[Turn]:
        who, said = self.random.choice(self.quotations)
        yield self.spelled(self.pick(SAID).format(who)), f'{who} said: "{said}"'

    def continued(self) -> Iterator[Turn]:
        beginning, end = self.random.choice(self.sentences)
        yield self.pick(GO_ON).format(beginning), end
