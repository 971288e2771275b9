"""Windows of an image: cutting it, shifting the cut, and where two tokens of a window stand.

Liu et al. 2021, section 3.2. An image [B, height, width, D] is cut into R = height/M · width/M
windows of M·M tokens. The next layer's windows are shifted by rolling the image: a window at the
edge then holds tokens from opposite sides, and a mask keeps them apart. Windows, and the tokens in
one, count row by row; the windows of an image stand together: window n is number n mod R of it.
"""

import torch

from labcore.shapes import ShapeError, require, whole


def window_partition(x, M):
    """The windows [B·R, M·M, D] of images [B, height, width, D].

    Height and width must be multiples of M: pad before you roll, or the padding lands inside.

    >>> image = torch.arange(16).reshape(1, 4, 4, 1)
    >>> window_partition(image, 2)[..., 0].tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    """
    require(x.ndim == 4, "x", f"shape {list(x.shape)}", "[B, height, width, D]", ShapeError)
    B, height, width, D = x.shape
    down, across = _windows(height, width, M)
    cut = x.reshape(B, down, M, across, M, D).transpose(2, 3)
    return cut.reshape(B * down * across, M * M, D)


def window_reverse(windows, M, height, width):
    """The images [B, height, width, D] that `window_partition` cut into [B·R, M·M, D].

    >>> image = torch.arange(16).reshape(1, 4, 4, 1)
    >>> bool((window_reverse(window_partition(image, 2), 2, 4, 4) == image).all())
    True
    """
    down, across = _windows(height, width, M)
    shape = list(windows.shape)
    fits = len(shape) == 3 and shape[1] == M * M and shape[0] % (down * across) == 0
    allowed = f"[B·{down * across}, {M * M}, D]"
    require(fits, "windows", f"shape {shape}", allowed, ShapeError)
    cut = windows.reshape(-1, down, across, M, M, shape[-1]).transpose(2, 3)
    return cut.reshape(-1, height, width, shape[-1])


def relative_index(M, *, device=None):
    """Where the offset from each token to each other stands in a table of them: [M·M, M·M].

    Two tokens of a window are apart by -(M-1) … M-1 in either direction, (2M-1)² offsets in all.
    Row t, column s holds (Δy + M-1)·(2M-1) + Δx + M-1 with Δ = position of t - position of s, so
    that table[index] of a table [(2M-1)², H] is a bias [M·M, M·M, H].

    >>> relative_index(2).tolist()
    [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]
    """
    whole("M", M)
    side = torch.arange(M, device=device)
    apart = side[:, None] - side[None, :] + M - 1
    index = apart[:, None, :, None] * (2 * M - 1) + apart[None, :, None, :]
    return index.reshape(M * M, M * M)


def shift_mask(height, width, M, shift, *, device=None):
    """Who may attend in the windows of an image rolled by -shift: bool [R, M·M, M·M].

    Rolling brings the first `shift` rows and columns to the far side. Two tokens of a window may
    attend to each other when the same edges were rolled past for both, that is, when they were
    neighbours before. `shift` 0 allows everything.

    >>> shift_mask(4, 4, 2, 1)[1].int().tolist()
    [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    _windows(height, width, M)
    whole("shift", shift, 0)
    require(shift < M, "shift", shift, f"0 … M-1={M - 1}")
    rows, cols = (torch.arange(size, device=device) + shift >= size for size in (height, width))
    region = rows[:, None] * 2 + cols[None, :] * 1
    region = window_partition(region[None, :, :, None], M)[..., 0]
    return region[:, :, None] == region[:, None, :]


def _windows(height, width, M):
    """Windows down and across an image, when M divides both sides; else an error."""
    whole("M", M)
    for name, size in (("height", height), ("width", width)):
        whole(name, size)
        require(size % M == 0, name, size, f"a multiple of M={M}")
    return height // M, width // M
