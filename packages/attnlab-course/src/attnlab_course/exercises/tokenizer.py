"""A tokenizer of words: texts to ids and back."""

# %% [course]
from attnlab_course.exercise import Case, Check, Exercise

# %% [markdown]
# # A tokenizer
#
# A model reads numbers, so each word gets one, its id. Frequent words get the small ids; what the
# vocabulary has no room for becomes `<UNK>`. All texts of a batch must be equally long, so short
# ones are filled up with `<PAD>`.
#
# **Write** the class `WordTokenizer(texts, vocab_size)` with four methods.
#
# | method | returns |
# | --- | --- |
# | `clean(text)` | the text in lower case, with one blank between words and none at the ends |
# | `vocabulary()` | the list of words; a word's place in it is its id |
# | `encode(text, max_length)` | a list of exactly `max_length` ids |
# | `decode(ids)` | a text |
#
# * The ids 0, 1 and 2 are `<PAD>`, `<UNK>` and `<CLS>`. Then come the words of the texts, the most
#   frequent first; of two words that are equally frequent, the one that appeared first.
# * A word is what stands between white space (blanks, tabs, ends of lines) in a clean text.
# * The vocabulary has at most `vocab_size` words, the three special ones included. These are there
#   even if `vocab_size` is smaller than 3, or if there are no texts.
# * A word of a text that reads `<pad>` is a word like any other.
# * `encode` cleans the text, puts the id of `<CLS>` in front, cuts at the end, and fills up at the
#   end.
# * `decode` leaves out `<PAD>` and `<CLS>` wherever they stand, keeps `<UNK>`, and puts a blank
#   between words.

# %%
from collections import Counter

SPECIAL = ["<PAD>", "<UNK>", "<CLS>"]


class WordTokenizer:
    """Turn texts into ids and back; the words are those of the texts it is made with."""

    def __init__(self, texts, vocab_size):
        # >>> solution
        counts = Counter()
        for text in texts:
            counts.update(self.clean(text).split())
        ordered = sorted(counts, key=lambda word: -counts[word])
        self.words = SPECIAL + ordered[: max(vocab_size - len(SPECIAL), 0)]
        self.ids = {word: number for number, word in enumerate(self.words)}
        # <<< solution

    def clean(self, text):
        """Return a text in lower case, with its white space folded."""
        # >>> solution
        return " ".join(text.lower().split())
        # <<< solution

    def vocabulary(self):
        """Return the words in the order of their ids."""
        # >>> solution
        return self.words
        # <<< solution

    def encode(self, text, max_length):
        """Return exactly `max_length` ids, the first of them that of <CLS>."""
        # >>> solution
        ids = [self.ids.get(word, 1) for word in self.clean(text).split()]
        ids = [2, *ids][:max_length]
        return ids + [0] * (max_length - len(ids))
        # <<< solution

    def decode(self, ids):
        """Return the words of the ids as a text, without <PAD> and <CLS>."""
        # >>> solution
        return " ".join(self.words[number] for number in ids if number not in (0, 2))
        # <<< solution


# %% [hints]
# 1. Which of the four methods do the other three need? Write it first.
# 2. Python's `str.split` without an argument takes any white space, and a `Counter` remembers
#    which word it met first.
# 3. Python's sort is stable: words with equal keys stay in the order in which they were.
# 4. To encode: look up each word of the clean text, with <UNK> for those that are missing; put
#    <CLS> in front; cut; then fill up what is missing to the length.

# %% [mistakes]
# ## only blanks: Only blanks are folded. Tabs and ends of lines are white space too.
# - " ".join(text.lower().split())
# + " ".join(word for word in text.lower().split(" ") if word)
# ## alphabetical ties: Equally frequent words come in alphabetical order; the first to appear comes
# first.
# - key=lambda word: -counts[word]
# + key=lambda word: (-counts[word], word)
# ## one too long: The text is cut before <CLS> is put in front, so long texts get one id too many.
# - [2, *ids][:max_length]
# + [2, *ids[:max_length]]
# ## padding decoded: `decode` writes out <PAD>.
# - number not in (0, 2)
# + number != 2

# %% [course]
TEXT = "a dull film but the best cast of any year and no plot at all"


def corpus(random, kinds):
    """Sample texts in which the words have the frequencies 1, 2, 3 …; return both."""
    words = list(map(str, random.permutation(TEXT.split())[:kinds]))
    bag = [word for number, word in enumerate(words) for _ in range(number + 1)]
    bag = list(map(str, random.permutation(bag)))
    cut = len(bag) // 3
    return [" ".join(bag[:cut]), " ".join(bag[cut:])], words[::-1]


def ask(texts, size, method, *args, **more):
    """One call of a method of a tokenizer made from texts."""
    return Case("WordTokenizer", build=((texts, size), {}), methods=((method, args, {}),), **more)


def cleaned(random):
    """White space of all kinds, and capitals."""
    yield ask(["a"], 9, "clean", "Good")
    yield ask(["a"], 9, "clean", " A  GOOD\tFilm\n\nÉclair ")
    yield ask(["a"], 9, "clean", " \t ", words="with white space alone")


def ordered(random):
    """Words that all differ in frequency; the most frequent one is not the first of its text."""
    for kinds in (2, 5, 7):
        texts, _ = corpus(random, kinds)
        for size in (50, 3 + kinds - 1):
            yield ask(texts, size, "vocabulary")


def one_text(random):
    """A word that is frequent in one text, against words that are in two."""
    yield ask(["so so so so bad", "not bad", "bad not"], 9, "vocabulary")
    texts = ["The\tplot", "the PLOT THE  end", "THE\nPLOT end the"]
    yield ask(texts, 9, "vocabulary", words="with capitals and tabs")


def ties(random):
    """Words that are equally frequent."""
    words = list(map(str, random.permutation(TEXT.split())[:6]))
    while words == sorted(words) or words == sorted(words, reverse=True):
        words = list(map(str, random.permutation(TEXT.split())[:6]))
    yield ask([" ".join(words)], 9, "vocabulary")
    yield ask([" ".join([*words, "z"]), "z"], 99, "vocabulary")


def encoded(random):
    """Texts shorter and longer than `max_length`, and words that are not known."""
    texts, words = corpus(random, 5)
    text = " ".join(words[number] for number in random.integers(0, 5, 4))
    for length in (7, 3):
        yield ask(texts, 8, "encode", text, length)
    text = f"{words[1]} unseen {words[0]}"
    yield ask(texts, 8, "encode", text, 5, words="with a new word")
    text = f" {words[2].upper()}\t{words[0].title()}\n"
    yield ask(texts, 8, "encode", text, 4, words="with capitals and a tab")


def lengths(random):
    """Lengths at the edge."""
    yield ask(["so bad"], 9, "encode", "so bad", 1)
    yield ask(["so so bad"], 9, "encode", "so bad", 3)
    yield ask(["so bad"], 9, "encode", "", 4, words="with an empty text")


def decoded(random):
    """Ids of a text and its padding, and special ids in the middle."""
    texts, _ = corpus(random, 5)
    for ids in ([2, 3, 5, 0, 0], [2, 4, 1, 7, 1], [4, 0, 6, 2, 3]):
        yield ask(texts, 8, "decode", ids)


def small(random):
    """No room, or no texts."""
    for size in (3, 2, 0):
        yield ask(["so bad"], size, "vocabulary")
    yield ask([], 9, "vocabulary", words="with no texts")


def literal(random):
    """Words that look like special ones."""
    texts = ["<pad> <PAD> <Unk> <pad> <unk> film"]
    yield ask(texts, 9, "vocabulary")
    yield ask(texts, 9, "encode", "<pad> <unk> film", 5)
    yield ask(texts, 9, "decode", [2, 5, 3, 0])


EXERCISE = Exercise(
    "Texts to ids",
    level=1,
    minutes=30,
    checks=(
        Check("clean", "cleans a text", cleaned, points=2),
        Check("vocabulary", "orders the words by frequency", ordered, points=2),
        Check("encode", "turns a text into ids", encoded, points=2),
        Check("decode", "turns ids into a text", decoded),
        Check("counts", "counts every word of every text, once cleaned", one_text),
        Check("ties", "orders equally frequent words by appearance", ties),
        Check("lengths", "always gives `max_length` ids", lengths),
        Check("small", "always has the three special words", small),
        Check("special", "takes words that look special as words", literal),
    ),
)
