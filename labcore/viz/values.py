"""Numbers on their way into a picture: as an array, checked, and as text."""

import numbers

import numpy

from labcore.shapes import require


def as_array(values, name, ndim=None):
    """NumPy array of `values`: a tensor, an array, or nested lists of numbers.

    Refuses anything that is not numbers, an empty array, and, when `ndim` is given (a number or a
    tuple of numbers), another number of axes.

    >>> as_array([[1, 2, 3]], "values", ndim=2).shape
    (1, 3)
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) in ("torch.bfloat16",) else values
    try:
        array = numpy.asarray(values)
    except ValueError:  # rows of different length
        require(False, name, given="rows of different length", allowed="a rectangular array")
    told = f"{type(values).__name__} of {array.dtype}"
    require(array.dtype.kind in "biuf", name, given=told, allowed="real numbers")
    if ndim is not None:
        axes = ndim if isinstance(ndim, tuple) else (ndim,)
        allowed = f"{' or '.join(str(n) for n in axes)} axes"
        require(array.ndim in axes, name, given=f"shape {list(array.shape)}", allowed=allowed)
    require(array.size > 0, name, given=f"shape {list(array.shape)}", allowed="at least one number")
    return array


def finite(values, name, ndim=None, also=()):
    """Array of `values` after making sure that a picture can show every one of them.

    NaN and infinities are refused, except those in `also` (`-inf` marks a forbidden score).

    >>> finite([0.0, float("nan")], "loss")
    Traceback (most recent call last):
    ValueError: loss: got nan at index [1]; allowed: finite numbers
    """
    array = as_array(values, name, ndim)
    bad = ~(numpy.isfinite(array) | numpy.isin(array, list(also)))
    if bad.any():
        where = [int(i) for i in numpy.argwhere(bad)[0]]
        given = f"{float(array[tuple(where)])} at index {where}"
        extra = "".join(f", {float(value)}" for value in also)
        require(False, name, given=given, allowed=f"finite numbers{extra}")
    return array


def number_text(value, digits=2):
    """Text of one number: whole numbers whole, others with `digits` decimals, never `-0.00`.

    >>> [number_text(x) for x in (3, 0.125, -0.001, float("-inf"), True)]
    ['3', '0.12', '0.00', '-∞', '1']
    """
    if isinstance(value, (bool, numpy.bool_, numbers.Integral)):
        return str(int(value))
    value = float(value)
    if numpy.isinf(value):
        return "-∞" if value < 0 else "∞"
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def label_text(value):
    """Text of one dial value or label: on and off for booleans, short floats, else `str`.

    >>> [label_text(x) for x in (True, 0.1 + 0.2, 64, None, "it")]
    ['on', '0.3', '64', 'none', 'it']
    """
    if value is None:
        return "none"
    if isinstance(value, (bool, numpy.bool_)):
        return "on" if value else "off"
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return f"{float(value):.6g}"
    return str(value)


def names(values, count, argument):
    """List of `count` label texts; refuses another number of them. None stays None.

    >>> names(["the", "cat"], 2, "rows")
    ['the', 'cat']
    """
    if values is None:
        return None
    labels = [label_text(value) for value in values]
    require(len(labels) == count, argument, given=f"{len(labels)} labels", allowed=f"{count}")
    return labels
