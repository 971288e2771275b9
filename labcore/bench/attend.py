"""Rows of attention: the formula against torch's fused form, the layers against torch's layers."""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from labcore.attention import MultiHeadAttention, attend, causal_mask
from labcore.bench.harness import with_backward
from labcore.bench.registry import row
from labcore.blocks import EncoderBlock

SDPA = "F.scaled_dot_product_attention"
# (B, H, T, S, K): one short sentence, a batch, a long sequence, and few queries on many keys.
SHAPES = [(1, 8, 32, 32, 64), (8, 8, 128, 128, 64), (1, 8, 1024, 1024, 64), (4, 8, 16, 512, 64)]


def _qkv(shape, device, grad=False):
    B, H, T, S, K = shape
    draw = torch.Generator(device=device).manual_seed(0)
    sizes = [(B, H, T, K), (B, H, S, K), (B, H, S, K)]
    made = [torch.randn(size, generator=draw, device=device) for size in sizes]
    return [x.requires_grad_(grad) for x in made]


def _mask(shape, device):
    """A mask that hides the last third of the keys of every sequence, ready for both sides."""
    B, _, _, S, _ = shape
    return (torch.arange(S, device=device) < S - S // 3).expand(B, 1, 1, S)


def _fused(shape, kind, backward, device):
    q, k, v = _qkv(shape, device, grad=backward)
    T, S = shape[2], shape[3]
    mask = _mask(shape, device) if kind == "mask" else None
    causal = kind == "causal"
    # torch's is_causal is aligned to the top left; for T < S the same work takes its mask.
    theirs_mask = causal_mask(T, S, device=device) if causal and T != S else mask

    def ours():
        return attend(q, k, v, mask, causal=causal)

    def theirs():
        square = causal and T == S
        return F.scaled_dot_product_attention(q, k, v, attn_mask=theirs_mask, is_causal=square)

    if not backward:
        return _no_grad(ours), _no_grad(theirs)
    return with_backward(ours, [q, k, v]), with_backward(theirs, [q, k, v])


def _explicit(shape, causal, device):
    q, k, v = _qkv(shape, device)
    ours = functools.partial(attend, q, k, v, causal=causal, need_weights=True)
    theirs = functools.partial(F.scaled_dot_product_attention, q, k, v, is_causal=causal)
    return _no_grad(lambda: ours()[0]), _no_grad(theirs)


def _layer(need_weights, device):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(512, 8, batch_first=True).to(device).eval()
    ours, x = MultiHeadAttention.from_torch(theirs).eval(), torch.randn(4, 128, 512, device=device)
    options = {"need_weights": need_weights, "average_attn_weights": False}
    if need_weights:
        return (
            _no_grad(lambda: ours(x, need_weights=True)),
            _no_grad(lambda: theirs(x, x, x, **options)),
        )
    # Under no_grad torch's layer takes its own fused path in evaluation mode: its best case.
    return _no_grad(lambda: ours(x)), _no_grad(lambda: theirs(x, x, x, **options)[0])


def _copied_block(width, heads, hidden, device):
    """(ours, theirs): a post-norm GELU block and torch's layer with the same weights."""
    options = {"dropout": 0.0, "activation": "gelu", "batch_first": True}
    theirs = nn.TransformerEncoderLayer(width, heads, hidden, **options).to(device)
    ours = EncoderBlock(width, heads, hidden, activation="gelu").to(device)
    ours.attention = MultiHeadAttention.from_torch(theirs.self_attn)
    pairs = [
        (ours.attention_norm, theirs.norm1),
        (ours.ffn_norm, theirs.norm2),
        (ours.ffn.up_proj, theirs.linear1),
        (ours.ffn.down_proj, theirs.linear2),
    ]
    for mine, other in pairs:
        mine.load_state_dict(other.state_dict())
    return ours, theirs


def _block(backward, device):
    torch.manual_seed(0)
    ours, theirs = _copied_block(384, 12, 1536, device)
    x = torch.randn(4, 128, 384, device=device, requires_grad=backward)
    if not backward:
        ours.eval(), theirs.eval()
        return _no_grad(lambda: ours(x)), _no_grad(lambda: theirs(x))
    pair = []
    for module in (ours, theirs):
        run = with_backward(functools.partial(module, x), [x, *module.parameters()])
        # The parameters come in another order on each side: the gradient of x is compared.
        pair.append(lambda run=run: run()[0])
    return tuple(pair)


def _no_grad(function):
    return torch.no_grad()(function)


def _register():
    for shape in SHAPES:
        sizes = " ".join(f"{letter}{size}" for letter, size in zip("BHTSK", shape, strict=True))
        for kind in ("all visible", "causal", "mask"):
            for backward in (False, True):
                title = f"{kind}, {sizes}, {'forward + backward' if backward else 'forward'}"
                build = functools.partial(_fused, shape, kind, backward)
                # On the smallest shape the ratio is the price of checking the arguments, some
                # microseconds a call: worth knowing, but no measure of the attention.
                asked = {} if shape is SHAPES[0] else {"floor": 1.0, "goal": 1.0}
                row("attend", title, against=SDPA, **asked)(build)
    for shape in SHAPES[1:3]:
        sizes = " ".join(f"{letter}{size}" for letter, size in zip("BHTSK", shape, strict=True))
        for causal in (False, True):
            title = f"weights asked for, {'causal' if causal else 'all visible'}, {sizes}, forward"
            row("attend", title, against=SDPA)(functools.partial(_explicit, shape, causal))
    for need_weights in (False, True):
        title = (
            f"MultiHeadAttention, width 512, 8 heads, {'with' if need_weights else 'no'} weights"
        )
        build = functools.partial(_layer, need_weights)
        row("attend", title, against="nn.MultiheadAttention", floor=0.95, goal=1.0)(build)
    for backward in (False, True):
        title = "EncoderBlock, width 384, 12 heads, hidden 1536, "
        title += "forward + backward" if backward else "forward"
        build = functools.partial(_block, backward)
        row("attend", title, against="nn.TransformerEncoderLayer", floor=0.95, goal=1.0)(build)


_register()
