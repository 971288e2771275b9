"""Tiles of the attention kernels: measured nowhere yet, but clean in the compile gate."""

from labcore.kernels.config import Table, Tile

_ALL = {
    (c, b, w): Tile(16, 32, 0, 4, 2) for c in (75, 90) for b in (16, 32) for w in (16, 32, 64, 128)
}
FORWARD = Table("attention_forward", _ALL)
FORWARD_ROUGH = Table("attention_forward_rough", _ALL)
DKDV = Table("attention_dkdv", _ALL)
DKDV_ROUGH = Table("attention_dkdv_rough", _ALL)
DQ = Table("attention_dq", _ALL)
DQ_ROUGH = Table("attention_dq_rough", _ALL)
DELTA = Table("attention_delta", _ALL)
