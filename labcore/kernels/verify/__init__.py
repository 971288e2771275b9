"""What proves the kernels where no GPU is: a strict interpreter, and a gate on the compiler's work.

Nothing here is imported by the operators. Both parts import Triton, and one process can either
interpret kernels or compile them, so each runs in a process of its own.
"""
