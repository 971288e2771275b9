"""The letter table: one name per axis, everywhere in the book, and the check that enforces it."""

import math
import numbers
from typing import NamedTuple

import torch

# Beyond this, sums of positions could leave 64 bits unnoticed.
MOST = 2**31 - 1


class Letter(NamedTuple):
    """One axis: the letter used in code, its LaTeX form, what it counts, and the Chinese term."""

    letter: str
    latex: str
    meaning: str
    chinese: str


LETTERS = {
    row[0]: Letter(*row)
    for row in [
        ("B", "B", "batch: sequences handled together", "批大小"),
        ("T", "T", "query positions", "查询位置数"),
        ("S", "S", "key positions", "键位置数"),
        ("D", r"D", "model width", "模型维度"),
        ("H", "H", "query heads", "注意力头数"),
        ("G", "G", "key/value heads (G divides H)", "键值头数"),
        ("K", "d_k", "key width per head", "键维度"),
        ("V", "d_v", "value width per head", "值维度"),
        ("F", "d_{ff}", "hidden width of a feed-forward layer", "前馈层中间维度"),
        ("E", "E", "experts", "专家数"),
        ("A", "k", "active experts per token", "每个 token 的专家数"),
        ("N", "N", "tokens: B·T, or the length of one sequence", "token 数"),
        ("C", "C", "capacity: tokens one expert accepts", "专家容量"),
        ("W", "W", "visible keys in a sliding window, self included", "窗口大小"),
        ("L", "L", "layers", "层数"),
        ("M", "M", "side of an image window", "图像窗口边长"),
        ("R", "R", "windows per image", "每幅图像的窗口数"),
        ("P", "P", "image patches", "图像块数"),
        ("Y", "|V|", "vocabulary size", "词表大小"),
    ]
}


class ShapeError(ValueError):
    """A tensor whose shape does not fit the letters asked for."""


def require(ok, argument, given, allowed, error=ValueError):
    """None when `ok`; otherwise raises `error` naming the argument, what came and what may come.

    >>> require(512 % 7 == 0, "heads", given=7, allowed="a divisor of width 512")
    Traceback (most recent call last):
    ValueError: heads: got 7; allowed: a divisor of width 512
    """
    if not ok:
        raise error(f"{argument}: got {given}; allowed: {allowed}")


def whole(argument, value, least=1):
    """`value` as an int, when it is a whole number from `least` to 2³¹ - 1; else a ValueError.

    >>> whole("heads", 8)
    8
    >>> whole("heads", True)
    Traceback (most recent call last):
    ValueError: heads: got True; allowed: a whole number of at least 1
    """
    if type(value) is int and least <= value <= MOST:
        return value  # the usual case; below, words are put together
    ok = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    allowed = f"a whole number of at least {least}"
    require(ok and value >= least, argument, given=repr(value), allowed=allowed)
    require(value <= MOST, argument, given=value, allowed=f"{allowed}, at most {MOST}")
    return int(value)


def number(argument, value, *, above=-math.inf, least=-math.inf, most=math.inf):
    """`value` as a float, when it is a finite number within the bounds; else a ValueError.

    >>> number("eps", 1e-5, above=0)
    1e-05
    >>> number("eps", float("nan"), above=0)
    Traceback (most recent call last):
    ValueError: eps: got nan; allowed: a finite number above 0
    """
    if type(value) is float and above < value < math.inf and least <= value <= most:
        return value  # the usual case; below, words are put together
    try:
        ok = not isinstance(value, bool) and isinstance(value, numbers.Real)
        ok = ok and math.isfinite(value) and value > above and least <= value <= most
    except OverflowError:  # a whole number that no float can hold
        ok = False
    words = [f"above {above:g}"] * (above > -math.inf)
    words += [f"of at least {least:g}"] * (least > -math.inf)
    words += [f"of at most {most:g}"] * (most < math.inf)
    told = repr(value) if len(repr(value)) < 60 else f"{repr(value)[:20]}…"
    require(ok, argument, told, " ".join(["a finite number", " and ".join(words)]).strip())
    return float(value)


def flag(argument, value):
    """`value`, when it is True or False; else a TypeError: "no" and None are not False.

    >>> flag("causal", "no")
    Traceback (most recent call last):
    TypeError: causal: got 'no'; allowed: True or False
    """
    if value is not True and value is not False:
        require(False, argument, repr(value), "True or False", TypeError)
    return value


def check(x, pattern, name="x", **known):
    """Sizes of `x` by letter, after checking them against `pattern`.

    A pattern is letters and numbers separated by spaces; a leading `...` allows any number of axes
    before the named ones. The same letter must have the same size everywhere, and the size given
    in `known` where there is one. Raises `ShapeError` with the tensor's name and both shapes.

    >>> check(torch.zeros(3, 4, 5, 6), "B H T K", name="q", K=6)
    {'B': 3, 'H': 4, 'T': 5, 'K': 6}
    >>> check(torch.zeros(3, 5), "B H T K", name="q")
    Traceback (most recent call last):
    labcore.shapes.ShapeError: q: got shape [3, 5]; allowed: [B, H, T, K]
    """
    axes = pattern.split()
    free = bool(axes) and axes[0] == "..."
    axes = axes[1:] if free else axes
    unknown = [a for a in axes if not a.isdigit() and a not in LETTERS]
    require(not unknown, "pattern", given=repr(pattern), allowed="letters of LETTERS and numbers")
    shape = list(x.shape)

    def refuse():
        told = ", ".join(f"{a}={known[a]}" if a in known else a for a in axes)
        allowed = f"[{'..., ' if free else ''}{told}]"
        raise ShapeError(f"{name}: got shape {shape}; allowed: {allowed}")

    if len(shape) < len(axes) or (len(shape) > len(axes) and not free):
        refuse()
    sizes = {}
    for axis, size in zip(axes, shape[len(shape) - len(axes) :], strict=True):
        wanted = int(axis) if axis.isdigit() else sizes.get(axis, known.get(axis, size))
        if size != wanted:
            refuse()
        if not axis.isdigit():
            sizes[axis] = size
    return sizes


def readable(x):
    """Whether looking at the values of `x` is cheap and possible: they lie on the CPU, and no model
    is being compiled or exported, where tensors have no values yet.

    >>> readable(torch.zeros(1)), readable(torch.zeros(1, device="meta"))
    (True, False)
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def check_ids(x, name, vocabulary=None, pattern=None, *, dtypes=(torch.int64, torch.int32)):
    """None, or an error unless `x` is a tensor of ids 0 … vocabulary - 1, of this `pattern`.

    Without a `vocabulary` only negative ids are refused. The range is checked on the CPU only: on a
    GPU it would wait for the device, which reports a bad index itself; and not while a model is
    compiled or exported, where ids have no values yet.

    >>> check_ids(torch.tensor([3]), "ids", 3)
    Traceback (most recent call last):
    ValueError: ids: got values 3 to 3; allowed: values 0 to 2
    >>> check_ids(torch.tensor([[1.0]]), "ids", 3, "B T")
    Traceback (most recent call last):
    TypeError: ids: got torch.float32; allowed: an int64 or int32 tensor
    """
    given = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
    if given not in dtypes:
        told = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        require(False, name, given, f"an {told} tensor", error=TypeError)
    if pattern is not None and x.ndim != pattern.count(" ") + 1:
        check(x, pattern, name)
    if readable(x) and x.numel():
        low, high = (int(end) for end in x.aminmax())
        inside = low >= 0 and (vocabulary is None or high < vocabulary)
        if not inside:
            allowed = (
                "values of at least 0" if vocabulary is None else f"values 0 to {vocabulary - 1}"
            )
            require(False, name, f"values {low} to {high}", allowed)


def dropout_share(value):
    """`value` as a float, when it is a share of numbers that dropout may set to 0, from 0 to 1.

    >>> dropout_share(0.1)
    0.1
    """
    return number("dropout", value, least=0, most=1)
