class WordTokenizer:
    def __init__(self, texts, vocab_size):
        count, first = {}, {}
        for text in texts:
            for word in self.clean(text).split():
                count[word] = count.get(word, 0) + 1
                first.setdefault(word, len(first))
        order = sorted(count, key=lambda w: (-count[w], first[w]))
        self.id = {"<PAD>": 0, "<UNK>": 1, "<CLS>": 2}
        for word in order:
            if len(self.id) >= vocab_size:
                break
            self.id[word] = len(self.id)

    def clean(self, text):
        words = text.split()
        return " ".join(w.lower() for w in words)

    def vocabulary(self):
        return [*self.id]

    def encode(self, text, max_length):
        ids = [self.id["<CLS>"]] + [self.id.get(w, 1) for w in self.clean(text).split()]
        ids += max_length * [0]
        return ids[:max_length]

    def decode(self, ids):
        back = {number: word for word, number in self.id.items()}
        return " ".join(back[i] for i in ids if back[i] not in ("<PAD>", "<CLS>"))
