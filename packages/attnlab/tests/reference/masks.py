"""Masks say who may attend to whom: boolean arrays (query, key), True = may attend.

Rows are queries, columns are keys. When there are more keys than queries (a cache of earlier keys),
the queries are the last `n_query` positions, so query row i stands at position i + n_key - n_query.
Masks combine with `&` (both must allow) and `|` (one is enough). Float biases live in `positions`.
"""

import numpy as np
from numpy.typing import NDArray

Booleans = NDArray[np.bool_]


def causal_mask(n_query, n_key=None):
    """Let each query see its own position and all before it: key position <= query position.

    >>> causal_mask(2, 3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    query, key = query_and_key_positions(n_query, n_key)
    return key <= query


def anti_causal_mask(n_query, n_key=None):
    """Let each query see its own position and all after it: key position >= query position.

    >>> anti_causal_mask(2, 3).astype(int)
    array([[0, 1, 1],
           [0, 0, 1]])
    """
    query, key = query_and_key_positions(n_query, n_key)
    return key >= query


def sliding_window_mask(n_query, window, n_key=None):
    """Let each query see itself and the `window - 1` positions before it: 0 <= query - key <
    window.

    >>> sliding_window_mask(3, window=2).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    query, key = query_and_key_positions(n_query, n_key)
    return (key <= query) & (query - key < window)


def prefix_mask(n, prefix):
    """Show the first `prefix` keys to every query and leave the rest causal.

    >>> prefix_mask(3, prefix=2).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    assert prefix <= n
    query, key = query_and_key_positions(n, n)
    return (key < prefix) | (key <= query)


def block_mask(lengths):
    """Let positions see their own block only: the mask of several sequences packed into one.

    >>> block_mask([1, 2]).astype(int)
    array([[1, 0, 0],
           [0, 1, 1],
           [0, 1, 1]])
    """
    block = np.repeat(np.arange(len(lengths)), np.asarray(lengths, dtype=np.int64))
    same_block: Booleans = block[:, None] == block[None, :]
    return same_block


def padding_mask(lengths, n):
    """Hide the padding: of n keys, row b of the batch has `lengths[b]` real ones, at the front.

    >>> padding_mask([1, 3], n=3)[:, 0, 0, :].astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    visible: Booleans = np.arange(n) < np.asarray(lengths, dtype=np.int64)[:, None, None, None]
    return visible


def query_and_key_positions(n_query, n_key=None):
    """Number the positions: queries as a column (query, 1), keys as a row (1, key).

    >>> query_and_key_positions(1, 3)
    (array([[2]]), array([[0, 1, 2]]))
    """
    n_key = n_query if n_key is None else n_key
    assert n_key >= n_query
    key = np.arange(n_key, dtype=np.int64)
    query = key[n_key - n_query :]
    return query[:, None], key[None, :]
