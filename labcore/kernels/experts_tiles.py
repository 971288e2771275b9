"""Tiles of the grouped matrix product, by GPU, precision and rows that an expert has on average.

The third key of the tables is a class of rows per expert. The average N / E is known to the host
without asking the device; how the rows are really spread is not, and changes only how many rows of
the tiles stay empty.
"""

from labcore.kernels.config import Table, Tile

# Tiles of rows that share the columns' weights in the cache, one after the other.
BAND = 8
DECODE, FINE, LARGE = 16, 64, 128
# Rows that do not start on 16 bytes are loaded element by element, each with an address of its own
# in a register: large tiles would spill.
RAGGED = 0


def rows_class(N, E):
    """`DECODE`, `FINE` or `LARGE`: which kind of tile N rows over E experts ask for.

    >>> rows_class(64, 64), rows_class(128 * 512, 128), rows_class(64 * 2048, 64)
    (16, 64, 128)
    """
    if N <= 32 * E:
        return DECODE
    return FINE if N <= 1024 * E else LARGE


# A decode tile of 16 rows holds one token or a few: it is there to read weights, and keeps many
# columns in flight. On 9.0 a warpgroup multiplies 64 rows at least, so these tiles use the older
# instruction (HMMA), which costs nothing: the memory is what they wait for.
EXPERT_FORWARD = Table(
    "expert_forward",
    {
        (75, 16, RAGGED): Tile(32, 32, 32, warps=4, stages=2),
        (75, 16, DECODE): Tile(16, 64, 32, warps=4, stages=2),
        (75, 16, FINE): Tile(32, 32, 32, warps=4, stages=2),
        (75, 16, LARGE): Tile(32, 32, 32, warps=4, stages=2),
        (75, 32, RAGGED): Tile(32, 32, 32, warps=4, stages=2),
        (75, 32, DECODE): Tile(16, 32, 32, warps=4, stages=2),
        (75, 32, FINE): Tile(32, 32, 32, warps=4, stages=2),
        (75, 32, LARGE): Tile(32, 32, 32, warps=4, stages=2),
        (80, 16, RAGGED): Tile(64, 64, 16, warps=4, stages=3),
        (80, 16, DECODE): Tile(16, 64, 128, warps=4, stages=4),
        (80, 16, FINE): Tile(64, 128, 64, warps=4, stages=3),
        (80, 16, LARGE): Tile(128, 128, 64, warps=8, stages=3),
        (80, 32, RAGGED): Tile(64, 64, 16, warps=4, stages=3),
        (80, 32, DECODE): Tile(16, 64, 64, warps=4, stages=3),
        (80, 32, FINE): Tile(64, 64, 32, warps=4, stages=3),
        (80, 32, LARGE): Tile(64, 64, 32, warps=4, stages=3),
        (90, 16, RAGGED): Tile(64, 64, 16, warps=4, stages=3),
        (90, 16, DECODE): Tile(16, 64, 128, warps=4, stages=4),
        (90, 16, FINE): Tile(128, 128, 64, warps=8, stages=3),
        (90, 16, LARGE): Tile(128, 256, 64, warps=8, stages=3),
        (90, 32, RAGGED): Tile(64, 64, 16, warps=4, stages=3),
        (90, 32, DECODE): Tile(16, 64, 64, warps=4, stages=3),
        (90, 32, FINE): Tile(64, 64, 32, warps=4, stages=3),
        (90, 32, LARGE): Tile(64, 64, 32, warps=4, stages=3),
    },
)

# Here `rows` are the D of dW, `cols` its F, and `depth` the tokens taken at a time.
EXPERT_DW = Table(
    "expert_dw",
    {
        (75, 16, RAGGED): Tile(32, 32, 32, warps=4, stages=2),
        (75, 16, DECODE): Tile(32, 32, 16, warps=4, stages=2),
        (75, 16, FINE): Tile(32, 32, 32, warps=4, stages=2),
        (75, 16, LARGE): Tile(32, 32, 32, warps=4, stages=2),
        (75, 32, RAGGED): Tile(32, 32, 32, warps=4, stages=2),
        (75, 32, DECODE): Tile(32, 32, 16, warps=4, stages=2),
        (75, 32, FINE): Tile(32, 32, 32, warps=4, stages=2),
        (75, 32, LARGE): Tile(32, 32, 32, warps=4, stages=2),
        (80, 16, RAGGED): Tile(64, 64, 16, warps=4, stages=3),
        (80, 16, DECODE): Tile(64, 128, 16, warps=4, stages=2),
        (80, 16, FINE): Tile(128, 128, 64, warps=8, stages=3),
        (80, 16, LARGE): Tile(128, 128, 64, warps=8, stages=3),
        (80, 32, RAGGED): Tile(64, 64, 16, warps=4, stages=3),
        (80, 32, DECODE): Tile(64, 64, 16, warps=4, stages=2),
        (80, 32, FINE): Tile(64, 64, 32, warps=4, stages=3),
        (80, 32, LARGE): Tile(64, 64, 32, warps=4, stages=3),
        (90, 16, RAGGED): Tile(64, 64, 16, warps=4, stages=3),
        (90, 16, DECODE): Tile(64, 128, 16, warps=4, stages=2),
        (90, 16, FINE): Tile(128, 128, 64, warps=8, stages=3),
        (90, 16, LARGE): Tile(128, 256, 64, warps=8, stages=3),
        (90, 32, RAGGED): Tile(64, 64, 16, warps=4, stages=3),
        (90, 32, DECODE): Tile(64, 64, 16, warps=4, stages=2),
        (90, 32, FINE): Tile(64, 64, 32, warps=4, stages=3),
        (90, 32, LARGE): Tile(64, 64, 32, warps=4, stages=3),
    },
)
