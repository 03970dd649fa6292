def program(text):
    return [
        -1 if letter in text[max(place - 5, 0) : max(place - 1, 0)] else 1
        for place, letter in enumerate(text)
    ]


def every(texts):
    answers = [" ".join(f"{number:+g}" for number in program(text)) for text in texts]
    return "\n".join(answers)
