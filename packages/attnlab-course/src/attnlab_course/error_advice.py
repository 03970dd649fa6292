"""What errors of PyTorch and NumPy mean that learners meet often, in a sentence."""

_ADVICE = {
    "torch.return_types": "`x.max(dim)` returns the values and where they stand. Take its "
    "`.values`, or `x.amax(dim)`.",
    "received an invalid combination of arguments - got (keepdims": "A function of NumPy calls the "
    "one of the tensor, whose arguments have other names. Use those of torch.",
    "Expected target size": "`cross_entropy` wants the classes on axis 1. Make one row of logits "
    "for each target: `logits.reshape(-1, classes)` and `targets.reshape(-1)`.",
    "expected a tensor, got None": "The function returns nothing: is `return` missing?",
    "values, got None": "The function returns nothing: is `return` missing?",
    "), got None": "The function returns nothing: is `return` missing?",
    "SystemExit": "`exit()` and `raise SystemExit` end Python; a function ends by `return`.",
    "; got none": "A plain tensor is no parameter: make it an `nn.Parameter`.",
    "cannot assign module before Module.__init__": "`super().__init__()` comes first.",
    "its parameters are not those of the statement": "The checks write numbers into the "
    "parameters: each of the statement must be there, with its shape.",
}


def error_advice(words: str) -> list[str]:
    """Return what to do about an error or a wrong answer; nothing where we do not know.

    >>> error_advice("answer: expected a tensor, got None")
    ['The function returns nothing: is `return` missing?']
    """
    return [advice for piece, advice in _ADVICE.items() if piece in words]
