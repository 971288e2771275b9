"""Three operators with a kernel of their own: attention, window attention, expert GEMM.

Each has four forms of one signature: the naive law, the eager form that runs anywhere, the Triton
kernel, and the door that users call, which picks one of the last two. Triton is imported only when
a kernel runs: importing this package needs torch alone.
"""

from labcore.kernels.attention import attention
from labcore.kernels.dispatch import use, why
from labcore.kernels.experts import expert_gemm
from labcore.kernels.window import window_attention

__all__ = ["attention", "expert_gemm", "use", "why", "window_attention"]
