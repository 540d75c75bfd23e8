"""Inputs for the tests of attention, and what a plain computation makes of them."""

from dataclasses import dataclass

import numpy as np
from frameworks import DTYPES

# Half the distance from 1 to the next number of the dtype: the error of one rounding.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def dtypes(*devices):
    """The dtypes that the kernels of any of these devices take."""
    return DTYPES if "cpu" in devices else ("float16", "bfloat16")


@dataclass
class Expected:
    """What `reference` returns: the results, and sizes that rounding errors go by."""

    out: np.ndarray  # (batch, seqlen_q, heads, dim)
    lse: np.ndarray  # (batch, heads, seqlen_q)
    mean_size: np.ndarray  # of |v|, weighted like the results
    score_size: np.ndarray  # of each query: the largest sum of magnitudes in a score


def default_scale(dim):
    return dim**-0.5


def reference(q, k, v, scale=None, window=(-1, -1), softcap=0.0, alibi=None):
    """The formula, one query after the other, with the keys that it sees."""
    (batch, seqlen_q, heads, dim), seqlen_k = q.shape, k.shape[1]
    scale = default_scale(dim) if scale is None else scale
    group = heads // k.shape[2]
    # (batch, heads, seqlen, dim), with k and v repeated for the heads that share them.
    q = np.moveaxis(q, 2, 1)
    k, v = (np.repeat(np.moveaxis(x, 2, 1), group, axis=1) for x in (k, v))
    slopes = None if alibi is None else np.broadcast_to(alibi, (batch, heads))
    out, mean_size = np.zeros(q.shape), np.zeros(q.shape)
    lse, score_size = np.full(q.shape[:3], np.inf), np.zeros(q.shape[:3])
    left, right = window
    for i in range(seqlen_q):
        position = i + seqlen_k - seqlen_q
        first = 0 if left < 0 else max(0, position - left)
        last = seqlen_k if right < 0 else min(seqlen_k, position + right + 1)
        if first >= last:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            query, keys = q[:, :, i], k[:, :, first:last]
            scores = scale * np.einsum("bhd,bhjd->bhj", query, keys)
            sizes = scale * np.einsum("bhd,bhjd->bhj", np.abs(query), np.abs(keys))
            if softcap > 0:
                scores = softcap * np.tanh(scores / softcap)
            if alibi is not None:
                distance = np.abs(position - np.arange(first, last))
                scores = scores - slopes[..., None] * distance
                sizes = sizes + slopes[..., None] * distance
            top = scores.max(axis=-1, keepdims=True)
            weights = np.exp(scores - top)
            total = weights.sum(axis=-1, keepdims=True)
            seen = v[:, :, first:last]
            out[:, :, i] = np.einsum("bhj,bhjd->bhd", weights / total, seen)
            size = np.einsum("bhj,bhjd->bhd", weights / total, np.abs(seen))
            lse[:, :, i] = (np.log(total) + top)[..., 0]
        mean_size[:, :, i] = np.where(np.isfinite(size), size, 0.0)
        sizes = np.where(np.isfinite(sizes), sizes, 0.0)
        score_size[:, :, i] = sizes.max(axis=-1)
    out, mean_size = (np.moveaxis(x, 1, 2) for x in (out, mean_size))
    return Expected(out, lse, mean_size, score_size)


class Inputs:
    """Random q, k and v as float64 arrays, to be changed and to be rounded to a dtype."""

    def __init__(self, dtype, batch, lengths, heads, dim, kv_heads=None):
        self.dtype = dtype
        kv_heads = heads if kv_heads is None else kv_heads
        random = np.random.default_rng(0).standard_normal
        self.q = random((batch, lengths[0], heads, dim))
        self.k = random((batch, lengths[1], kv_heads, dim))
        self.v = random((batch, lengths[1], kv_heads, dim))

    def tensors(self, framework):
        return [framework.tensor(x, self.dtype) for x in (self.q, self.k, self.v)]

    def values(self, framework):
        """The arrays as rounded to the dtype."""
        return [framework.values(x) for x in self.tensors(framework)]

    def run(self, kernel, framework, **options):
        """The kernel's (out, lse) as arrays."""
        return self.call(kernel, framework, *self.tensors(framework), **options)

    def call(
        self,
        kernel,
        framework,
        *tensors,
        scale=None,
        window=(-1, -1),
        softcap=0.0,
        alibi=None,
    ):
        """The kernel's (out, lse) for tensors of the shapes of these arrays."""
        batch, seqlen, heads, dim = self.q.shape
        slopes = None if alibi is None else framework.tensor(alibi, "float32")
        out = framework.empty((batch, seqlen, heads, dim), self.dtype)
        lse = framework.empty((batch, heads, seqlen), "float32")
        kernel.fwd(*tensors, slopes, scale, False, *window, softcap, out, lse)
        return framework.values(out), framework.values(lse)
