"""Cutting an image into windows, shifting the cut, and the table of offsets."""

import itertools

import pytest
import torch

from labcore.attention.window import relative_index, shift_mask, window_partition, window_reverse
from labcore.shapes import ShapeError

# Images whose sides differ, in windows and in tokens; the last has one window down.
SIZES = [(6, 9, 3), (8, 4, 4), (14, 21, 7), (4, 12, 4), (5, 10, 5)]


@pytest.mark.parametrize(("height", "width", "M"), SIZES)
def test_windows_hold_what_slices_hold_and_go_back(height, width, M):
    image = torch.randn(2, height, width, 5)
    windows = window_partition(image, M)
    sliced = [
        image[b, y : y + M, x : x + M].reshape(M * M, 5)
        for b, y, x in itertools.product(range(2), range(0, height, M), range(0, width, M))
    ]
    assert torch.equal(windows, torch.stack(sliced))
    assert torch.equal(window_reverse(windows, M, height, width), image)


@pytest.mark.parametrize("M", [1, 2, 3, 7])
def test_the_index_tells_every_offset_apart_and_no_more(M):
    index = relative_index(M)
    places = list(itertools.product(range(M), range(M)))
    seen = {}
    for (t, (y, x)), (s, (v, u)) in itertools.product(enumerate(places), enumerate(places)):
        seen.setdefault((y - v, x - u), set()).add(index[t, s].item())
    numbers = sorted(number for found in seen.values() for number in found)
    assert numbers == list(range((2 * M - 1) ** 2))


def test_the_index_equals_the_published_construction():
    """As the reference code of Swin finds it: coordinates, differences, shifted and scaled."""
    for M in (2, 4, 7):
        grid = torch.stack(torch.meshgrid(torch.arange(M), torch.arange(M), indexing="ij"))
        apart = grid.flatten(1)[:, :, None] - grid.flatten(1)[:, None, :] + M - 1
        assert torch.equal(relative_index(M), apart[0] * (2 * M - 1) + apart[1])


@pytest.mark.parametrize(("height", "width", "M"), SIZES)
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_the_mask_equals_nine_numbered_regions(height, width, M, share):
    """The construction of the paper's figure 4: three bands each way, each crossing a region."""
    shift = round(share * (M - 1))
    bands = (slice(0, -M), slice(-M, -shift or None), slice(-shift, None) if shift else slice(0, 0))
    number = torch.zeros(height, width)
    for count, (rows, cols) in enumerate(itertools.product(bands, bands)):
        number[rows, cols] = count
    regions = window_partition(number[None, :, :, None], M)[..., 0]
    wanted = (regions[:, :, None] - regions[:, None, :]) == 0
    assert torch.equal(shift_mask(height, width, M, shift), wanted)


@pytest.mark.parametrize(("height", "width", "M"), SIZES)
def test_the_mask_allows_exactly_the_neighbours_of_before_the_roll(height, width, M):
    """Tokens carry their coordinates through the roll; a pair is allowed when its distance in the
    rolled image is its distance in the image: neither was carried round an edge alone."""
    shift = M // 2 or 1
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    now = window_partition(torch.stack([y, x], -1)[None], M)
    rolled = torch.stack([y, x], -1)[None].roll((-shift, -shift), (1, 2))
    before = window_partition(rolled, M)
    same = (now[:, :, None] - now[:, None]) == (before[:, :, None] - before[:, None])
    assert torch.equal(shift_mask(height, width, M, shift), same.all(-1))


def test_without_a_shift_everything_is_allowed():
    assert shift_mask(6, 9, 3, 0).all()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: window_partition(torch.zeros(2, 7, 6, 5), 3),
            r"height: got 7; .* multiple of M=3",
        ),
        (lambda: window_partition(torch.zeros(2, 6, 7, 5), 3), r"width: got 7; .* multiple of M=3"),
        (lambda: window_partition(torch.zeros(6, 6, 5), 3), r"x: got shape \[6, 6, 5\]"),
        (lambda: window_partition(torch.zeros(2, 6, 6, 5), 0), r"M: got 0"),
        (lambda: window_reverse(torch.zeros(5, 9, 4), 3, 6, 6), r"windows: got shape \[5, 9, 4\]"),
        (lambda: window_reverse(torch.zeros(4, 8, 4), 3, 6, 6), r"windows: got shape \[4, 8, 4\]"),
        (lambda: shift_mask(6, 6, 3, 3), r"shift: got 3; allowed: 0 … M-1=2"),
        (lambda: shift_mask(6, 6, 3, -1), r"shift: got -1"),
        (lambda: relative_index(2.5), r"M: got 2.5"),
    ],
)
def test_what_does_not_fit_is_named(call, told):
    with pytest.raises(ValueError, match=told):
        call()
    assert issubclass(ShapeError, ValueError)
