seen = "Almost all"
memory_accuracy = 1 / 2
first_loss = 0.69
confidence = 0.88
block_size = 49984.0
more_padding = " different"
word_order = "the same"
unknown_words = "The same"
