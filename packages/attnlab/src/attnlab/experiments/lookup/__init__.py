"""`lookup`: cross-attention finds things by content, in a set without order.

Two parts. `fixed`: an encoder–decoder learns a table of three facts from shuffled words; its
encoder has no positions, so every order of the words must give the same answer, and does. But its
table fits into its weights, so its attention is reported as it is. `recall`: the facts are new in
each sample, so that they must be read; a set of single words cannot hold them, and two other ways
to write them can.
"""

from attnlab.experiments.lookup.config import LookupConfig as LookupConfig
