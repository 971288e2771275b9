"""The Triton kernels and the functions that launch them: the only modules that import Triton."""
