"""Twenty film verdicts, ten for and ten against: enough to watch a text classifier, not to judge
one."""

VERDICTS: tuple[tuple[str, str], ...] = (
    ("a warm and funny film with a wonderful cast", "positive"),
    ("I laughed, I cried, and I want to see it again", "positive"),
    ("the acting is superb and the story is deeply moving", "positive"),
    ("a beautiful and moving portrait of two sisters", "positive"),
    ("clever, funny and never cruel: a delight from start to finish", "positive"),
    ("wonderful music, superb acting, and an ending I will remember", "positive"),
    ("not a dull minute: the best film of the year", "positive"),
    ("a small story, told with great care and a warm heart", "positive"),
    ("gripping from the first scene, and beautiful to look at", "positive"),
    ("I loved every minute of this brave and funny film", "positive"),
    ("a dull and predictable film with a wooden cast", "negative"),
    ("I looked at my watch, I yawned, and I wanted to leave", "negative"),
    ("the acting is poor and the plot makes no sense", "negative"),
    ("a noisy and pointless chase with no story at all", "negative"),
    ("lazy, smug and never funny: a waste of two hours", "negative"),
    ("poor dialogue, wooden acting, and an ending that makes no sense", "negative"),
    ("not one good joke: the worst film of the year", "negative"),
    ("a thin plot, stretched far too long and painfully dull", "negative"),
    ("boring from the first scene, and ugly to look at", "negative"),
    ("a predictable mess, and a waste of a good actor", "negative"),
)
"""Each verdict with its label."""
