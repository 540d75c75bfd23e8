"""Attention in the manner of FlashAttention-2 (Dao 2023, arXiv:2307.08691)."""

from ._jax import is_jax
from ._ops import ops
from ._outputs import empty_like
from ._torch import refuse_gradient, torch, torch_sees

if torch is not None:
    from ._torch_flash_attn2 import torch_fwd


def flash_attn_func(
    q,
    k,
    v,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    return_lse=False,
    out=None,
):
    """``softmax(softmax_scale * q @ k^T) @ v`` for each batch entry and head.

    With fewer heads in ``k`` and ``v`` than in ``q`` (grouped-query and multi-query
    attention), query head ``h`` uses head ``h // (heads_q / heads_k)`` of them.

    Queries and keys end together: query ``i`` stands at ``i + seqlen_k - seqlen_q``
    among the keys. A query that sees no key has zeros as its result and +inf as its
    log-sum-exp.

    Args:
«% if both %»
        q: (batch, seqlen_q, heads_q, dim) on the CPU or a CUDA device; float16 or
            bfloat16, on the CPU float32, too; dim a multiple of 8 from 32 to 256. From
            torch, numpy or any library with ``__dlpack__``. Only the last dimension
            must be contiguous; on a CUDA device the address and the other strides are
            multiples of 16 bytes.
«% elif on_cuda %»
        q: (batch, seqlen_q, heads_q, dim) on a CUDA device; float16 or bfloat16; dim a
            multiple of 8 from 32 to 256. From torch, numpy or any library with
            ``__dlpack__``. Only the last dimension must be contiguous; the address and
            the other strides are multiples of 16 bytes.
«% else %»
        q: (batch, seqlen_q, heads_q, dim) on the CPU; float32, float16 or bfloat16;
            dim a multiple of 8 from 32 to 256. From torch, numpy or any library with
            ``__dlpack__``. Only the last dimension must be contiguous.
«% endif %»
        k: (batch, seqlen_k, heads_k, dim) of the dtype of ``q``, where heads_k divides
            heads_q.
        v: As ``k``.
        softmax_scale: Factor of the products of queries and keys, above 0; by default
            ``dim ** -0.5``.
        causal: Whether a query sees no key after its own position.
        window_size: (left, right): how many keys before and after its own position a
            query sees, besides that at its position; a negative number for all.
        softcap: If above 0, scores become ``softcap * tanh(scores / softcap)``.
        alibi_slopes: float32 (heads_q,) or (batch, heads_q): each score is lowered by
            the slope times the distance between query and key.
        return_lse: Whether to return the logarithms of the softmax's denominators, too.
        out: Where to write: a contiguous tensor of the shape, dtype and device of
            ``q``. A new one by default, for torch, numpy and jax.

    Returns:
        ``out``, or ``(out, lse)`` with a new float32 ``lse`` (batch, heads_q, seqlen_q).

    Raises:
        RuntimeError: torch is asked for a gradient: there is none.
        TypeError: A tensor has another dtype or is no tensor.
        ValueError: A shape, stride, device or number is not as above, or ``out``
            overlaps an input.
    """
    left, right = window_size
    window, scores = (left, 0 if causal else right), (softmax_scale, softcap)
    out, lse = call(q, k, v, alibi_slopes, out, None, return_lse, window, scores)
    return (out, lse) if return_lse else out


def fwd(
    q,
    k,
    v,
    alibi_slopes,
    softmax_scale,
    is_causal,
    window_left,
    window_right,
    softcap,
    out=None,
    lse=None,
):
    """`flash_attn_func` with every argument given, and with ``lse`` to write to.

    Returns:
        ``(out, lse)``.
    """
    window = (window_left, 0 if is_causal else window_right)
    scores = (softmax_scale, softcap)
    return call(q, k, v, alibi_slopes, out, lse, True, window, scores)


def call(q, k, v, alibi_slopes, out, lse, with_lse, window, scores):
    """``(out, lse)`` by the library, with those of the caller or new ones."""
    seen = torch_sees(q, k, v, alibi_slopes, out, lse)
    if seen:
        instead = "train with torch.nn.functional.scaled_dot_product_attention"
        refuse_gradient("this attention", instead, q, k, v, alibi_slopes, out, lse)
    elif is_jax(q):
        from ._jax_flash_attn2 import jax_fwd

        return jax_fwd(q, k, v, alibi_slopes, out, lse, window, scores)
    if out is None:
        out = empty_like(q)
    if lse is None and with_lse:
        lse = empty_like(q, lse_shape(q), "float32", "lse")
    compute = torch_fwd if seen else ops.fwd
    compute(q, k, v, alibi_slopes, out, lse, window, scores)
    return out, lse


def lse_shape(q):
    """(batch, heads, seqlen); for other than 4 dimensions, the op says what is wrong."""
    shape = getattr(q, "shape", ())
    return (shape[0], shape[2], shape[1]) if len(shape) == 4 else ()
