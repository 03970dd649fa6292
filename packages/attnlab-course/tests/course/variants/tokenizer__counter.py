import re
from collections import Counter


class WordTokenizer:
    PAD, UNK, CLS = 0, 1, 2

    def __init__(self, texts, vocab_size=100):
        all_words = []
        for t in texts:
            cleaned = self.clean(t)
            if cleaned:
                all_words.extend(cleaned.split(" "))
        room = max(0, vocab_size - 3)
        self.itos = ["<PAD>", "<UNK>", "<CLS>"]
        for w, _ in Counter(all_words).most_common(room):
            self.itos.append(w)
        self.stoi = dict(zip(self.itos, range(len(self.itos))))

    def clean(self, text):
        return re.sub(r"\s+", " ", text.lower()).strip()

    def vocabulary(self):
        return list(self.itos)

    def encode(self, text, max_length=32):
        out = [self.CLS]
        for w in self.clean(text).split():
            if len(out) == max_length:
                break
            out.append(self.stoi[w] if w in self.stoi else self.UNK)
        while len(out) < max_length:
            out.append(self.PAD)
        return out

    def decode(self, ids):
        words = []
        for i in ids:
            if i == self.PAD or i == self.CLS:
                continue
            words.append(self.itos[i])
        return " ".join(words)
