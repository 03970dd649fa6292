def program(text):
    seen, waiting, out = set(), None, []
    for letter in text:
        out.append(-1 if letter in seen else 1)
        if waiting is not None:
            seen.add(waiting)
        waiting = letter
        # what was waiting counts from the next but one letter on
    return out


def every(texts):
    answers = [" ".join(f"{number:+g}" for number in program(text)) for text in texts]
    return "\n".join(answers)
