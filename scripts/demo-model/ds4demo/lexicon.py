"""Word lists, cut into the two splits."""
import json
from dataclasses import dataclass, field
from pathlib import Path

from . import prose
from .split import TEST, TRAIN, digest, word_split

ADJECTIVES = (
    'old small bright quiet heavy gentle narrow wooden silver empty broken distant warm clever lazy hungry proud silent green yellow purple '
    'orange white black round square smooth rough clean dusty hidden famous curious brave tired happy simple strange modern ancient golden '
    'frozen busy careful early late soft thick thin tall short wide deep loud calm cheap rare plain sharp sweet bitter polite honest'
).split()
NOUNS = (
    'farmer basket river mountain garden window table letter bridge castle forest engine bottle candle mirror ladder blanket teacher doctor '
    'painter singer driver soldier captain sailor baker tailor hunter miner pilot clerk guard monk king queen horse rabbit tiger eagle falcon '
    'turtle dolphin spider beetle donkey camel sparrow pigeon badger otter fox wolf bear goat carpet hammer shovel pencil paper lamp clock '
    'piano violin drum trumpet coin jewel crown sword shield helmet boat wagon train tower temple village harbor island desert valley meadow '
    'orchard kitchen cellar attic barn mill well fence gate stone feather button ribbon needle thread kettle spoon plate cup bowl knife fork '
    'chair bench shelf drawer pillow museum library station market theater school church beach lake cave hill field road corner cottage palace '
    'factory bakery office hospital airport stadium park zoo weather alarm email invoice meeting ticket song playlist note reminder file folder '
    'report order package account user contact photo video document room light door heater timer calendar event task project price stock rate '
    'flight hotel car route map message channel recipe product cart payment refund log server backup job device sensor camera printer password '
    'profile comment article page book movie game score team lesson exam bicycle umbrella jacket wallet sandwich ticket tunnel rocket planet '
    'cloud storm valley cable battery pump valve filter motor wheel brake pedal saddle anchor rope sail compass lantern statue fountain'
).split()
VERBS = (
    'carried watched painted followed repaired cleaned opened closed moved found lost sold bought borrowed returned admired ignored measured '
    'guarded visited crossed remembered noticed described lifted pushed pulled covered washed counted'
).split()
WHENS = (
    'in the morning', 'after dinner', 'before sunrise', 'last winter', 'every Sunday', 'at noon', 'during the storm', 'in early spring',
    'for a long time', 'without a word', 'with great care', 'as usual', 'again and again', 'by mistake',
)
NAMES = (
    'Alice Bob Carol David Emma Frank Grace Henry Irene Jack Karen Leo Maria Nick Olga Peter Rosa Sam Tina Victor Wendy Yuki Zoe Ahmed Bruno '
    'Chen Diego Elena Fatima Georg Hana Igor Jana Kofi Lena Marco Nadia Omar Paula Rahul Oscar Clara Felix Ingrid Milan Sofia Tomas Vera Hugo '
    'Mina Anna Boris Celia Dora Erik Flora Gustav Heidi Ivan Julia Kevin Laura Martin Nora Otto Petra Quentin Rita Simon Teresa Ursula Vincent '
    'Walter Xenia Yara Zach Amir Bella Carlos Dmitri Esther Fabio Gina Hector Isabel Jonas Kira Lucas Monica Nils Olivia Pablo Ralf Sara Tim '
    'Uma Viktor Wanda Youssef Zelda Arthur Beth Colin Daisy Edgar Fiona Gavin Helen Isaac Joan Kurt Linda Mark Nina Oliver Priya Robert Susan '
    'Thomas Violet William Agnes Basil Claire Dennis Eva Fred Gloria Harold Ida James Kate Louis Mary Neil Ophelia Paul Rachel Steve Tara'
).split()
CITIES = (
    'Paris London Berlin Madrid Rome Vienna Lisbon Dublin Oslo Prague Tokyo Delhi Cairo Lima Boston Chicago Denver Seattle Toronto Sydney '
    'Munich Lyon Milan Porto Seville Geneva Bergen Zurich Naples Kyoto Hamburg Bilbao Turin Dallas Perth Osaka Basel Ghent Athens Warsaw '
    'Helsinki Stockholm Copenhagen Brussels Budapest Bucharest Sofia Belgrade Zagreb Riga Tallinn Vilnius Krakow Gdansk Leipzig Dresden Graz '
    'Salzburg Venice Florence Palermo Valencia Granada Malaga Nice Bordeaux Nantes Lille Leeds Bristol Glasgow Cardiff Belfast Cork Austin '
    'Houston Phoenix Miami Atlanta Detroit Portland Montreal Vancouver Ottawa Havana Bogota Quito Santiago Mumbai Nairobi Accra Lagos Tunis'
).split()
DAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split()
MONTHS = 'January February March April May June July August September October November December'.split()
COLORS = 'red blue green yellow purple orange white black brown pink gray silver'.split()
FOODS = 'pizza soup bread cheese rice pasta salad apples grapes cake fish noodles honey beans'.split()
JOBS = 'teacher doctor painter singer driver captain baker tailor hunter miner pilot clerk guard nurse lawyer farmer engineer'.split()
SYLLABLES = (
    'ba be bi bo bu da de di do du fa fe fi fo ga go gu ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu pa pe pi po ra re ri ro ru '
    'sa se si so su ta te ti to tu va ve vi vo za ze zi zo zu sha tre bra plo gri che quo str ell orn ast'
).split()
CODAS = ['', 'n', 'r', 's', 'l', 'm', 't', 'x', 'nd', 'rk']


@dataclass
class Lexicon:
    """Everything words are drawn from.  `pieces` are spellings of vocabulary entries, empty before the tokenizer exists."""

    paragraphs: dict[str, list[str]]
    words: dict[str, list[str]]
    names: dict[str, list[str]]
    cities: dict[str, list[str]]
    nouns: dict[str, list[str]]
    pieces: list[str] = field(default_factory=list)


def by_split(words) -> dict[str, list[str]]:
    out = {TRAIN: [], TEST: []}
    for word in dict.fromkeys(words):
        out[word_split(word)].append(word)
    return out


def build(corpus: list[str], pieces: list[str] = ()) -> Lexicon:
    paragraphs = {TRAIN: [], TEST: []}
    for paragraph in corpus:
        paragraphs[TEST if digest(paragraph, 'paragraph') % 10 == 0 else TRAIN].append(paragraph)
    everyday = ADJECTIVES + NOUNS + FOODS + JOBS
    return Lexicon(
        paragraphs=paragraphs,
        words=by_split(sorted(set(everyday + prose.words(corpus)))),
        names=by_split(NAMES),
        cities=by_split(CITIES),
        nouns=by_split(NOUNS),
        pieces=list(pieces),
    )


def load(corpus_file: Path, pieces: list[str] = ()) -> Lexicon:
    return build(json.loads(Path(corpus_file).read_text()), pieces)
