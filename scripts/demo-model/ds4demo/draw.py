"""Random draws that respect a split: words, names and values of every kind that a request may carry."""
import random
import string

from . import lexicon as lists
from .lexicon import Lexicon
from .split import TEST, TRAIN, templates, word_split

SYMBOLS = '-_./:+#@'
EXTENSIONS = 'txt md py rs json csv log toml yaml png sh html c cfg'.split()
DOMAINS = 'com org net io dev edu info'.split()


class Draw:
    """A seeded source of text for one split.

    Training words are drawn widely, with random letters and pasted vocabulary entries among them, so that copying is learnt
    for every token.  Test words are held-out dictionary words, made-up words and some random letters.
    """

    def __init__(self, seed, split: str, lexicon: Lexicon):
        assert split in (TRAIN, TEST)
        self.rng = random.Random(seed)
        self.split = split
        self.lexicon = lexicon

    # -- plain randomness
    def pick(self, options):
        return options[self.rng.randrange(len(options))]

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def between(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def sample(self, options, count: int) -> list:
        return self.rng.sample(options, count)

    def form(self, forms: tuple[str, ...], more: tuple[str, ...] = ()) -> str:
        """One template of this split; training also draws from `more`, which evaluation never uses."""
        own = templates(forms, self.split)
        return self.pick(own + more if self.split == TRAIN else own)

    def weighted(self, options: dict):
        return self.rng.choices(list(options), list(options.values()))[0]

    # -- words
    def lexicon_word(self) -> str:
        return self.pick(self.lexicon.words[self.split])

    def made_up(self) -> str:
        while True:
            word = ''.join(self.pick(lists.SYLLABLES) for _ in range(self.between(2, 3))) + self.pick(lists.CODAS)
            if word_split(word) == self.split:
                return word

    def letters(self) -> str:
        while True:
            word = ''.join(self.pick(string.ascii_lowercase) for _ in range(self.between(3, 8)))
            if word_split(word) == self.split:
                return word

    def pasted(self) -> str:
        """Vocabulary entries glued together, so that every entry gets copied."""
        if not self.lexicon.pieces:
            return self.letters()
        while True:
            word = ''.join(self.pick(self.lexicon.pieces) for _ in range(self.between(1, 3)))
            if word_split(word) == self.split:
                return word

    def word(self) -> str:
        kind = self.rng.random()
        if self.split == TEST:
            return self.lexicon_word() if kind < .7 else self.made_up() if kind < .95 else self.letters()
        if kind < .60:
            return self.lexicon_word()
        if kind < .78:
            return self.made_up()
        return self.pasted() if kind < .94 else self.letters()

    def noun(self) -> str:
        return self.pick(self.lexicon.nouns[self.split]) if self.chance(.5) else self.lexicon_word()

    def identifier(self) -> str:
        """A name as programs use them: one or two words, joined in one of four styles."""
        first = self.word()
        if self.chance(.55):
            return first
        second = self.pick(('name', 'id', 'mode', 'code', 'type', 'value', 'list', 'path')) if self.chance(.5) else self.word()
        style = self.rng.random()
        if style < .7:
            return f'{first}_{second}'
        return first + second.capitalize() if style < .9 else f'{first}-{second}'

    # -- values
    def name(self) -> str:
        return self.pick(self.lexicon.names[self.split]) if self.chance(.5) else self.word().capitalize()

    def city(self) -> str:
        return self.pick(self.lexicon.cities[self.split]) if self.chance(.6) else self.word().capitalize()

    def phrase(self) -> str:
        words = [self.word() for _ in range(self.pick((1, 1, 1, 2, 2, 3)))]
        if self.chance(.25):
            words[0] = words[0].capitalize()
        if self.chance(.12):
            words.append(str(self.between(1, 999)))
        return ' '.join(words)

    def email(self) -> str:
        user = self.word() if self.chance(.5) else f'{self.word()}{self.pick("._-")}{self.word()}'
        return f'{user}@{self.word()}.{self.pick(DOMAINS)}'

    def path(self) -> str:
        parts = [self.word() for _ in range(self.between(1, 3))]
        return self.pick(('/', './', '', '~/', '/home/', '/tmp/', 'src/')) + '/'.join(parts) + '.' + self.pick(EXTENSIONS)

    def date(self) -> str:
        year, month, day = self.between(1990, 2035), self.between(1, 12), self.between(1, 28)
        if self.chance(.75):
            return f'{year}-{month:02}-{day:02}'
        return f'{lists.MONTHS[month - 1]} {day}' if self.chance(.5) else f'{day:02}/{month:02}/{year}'

    def time(self) -> str:
        return f'{self.between(0, 23):02}:{self.between(0, 59):02}'

    def url(self) -> str:
        return f'https://{self.word()}.{self.pick(DOMAINS)}/{self.word()}'

    def code(self) -> str:
        """An identifier with digits and punctuation, such as a ticket number or a version."""
        kind = self.rng.random()
        if kind < .3:
            return '.'.join(str(self.between(0, 30)) for _ in range(3))
        if kind < .6:
            return f'{self.word().upper() if self.chance(.5) else self.word()}-{self.between(1, 9999)}'
        return ''.join(self.pick(string.ascii_letters + string.digits + SYMBOLS) for _ in range(self.between(4, 10))).strip(SYMBOLS) or 'a1'

    def digits(self, low: int, high: int) -> str:
        return ''.join(self.pick(string.digits) for _ in range(self.between(low, high)))

    def text(self) -> str:
        """Any string value."""
        kind = self.weighted({'phrase': 50, 'name': 12, 'email': 6, 'path': 8, 'date': 5, 'code': 8, 'url': 4, 'time': 3, 'digits': 4})
        return self.digits(2, 8) if kind == 'digits' else getattr(self, kind)()

    # -- running text
    def sentence(self) -> str:
        adjective, noun = (lambda: self.pick(lists.ADJECTIVES)), self.noun
        verb, when = self.pick(lists.VERBS), self.pick(lists.WHENS)
        kind = self.rng.random()
        if kind < .25:
            return f'The {adjective()} {noun()} {verb} the {adjective()} {noun()} near the {noun()}.'
        if kind < .45:
            return f'{when[0].upper()}{when[1:]} the {noun()} {verb} a {adjective()} {noun()}.'
        if kind < .6:
            return f'{self.name()} {verb} the {noun()} at the {adjective()} {noun()} {when}.'
        if kind < .75:
            return f'Nobody at the {noun()} {verb} the {adjective()} {noun()} or the {noun()}.'
        if kind < .9:
            return f'The {noun()} was {adjective()} and the {noun()} was {adjective()}.'
        return f'A {adjective()} {noun()} and a {adjective()} {noun()} were found in the {noun()} {when}.'

    def paragraph(self) -> str:
        return self.pick(self.lexicon.paragraphs[self.split])
