"""A PTX machine: runs what NVRTC makes of a kernel, on NumPy, all threads of many blocks at once.

    kernel(path, name)                      a kernel of a PTX file, translated
    run(kernel, grid, block, ...)           one launch on host memory
    counting(counter)                       count requests, sectors and wavefronts in it

Every thread has a program counter of its own; a step runs one basic block for all threads that are
there. Barriers and shuffles are meetings. What a device would do with undefined results is an error
here: accesses outside the arrays that were passed or not aligned to their size, threads of a block
at different barriers or gone before one, a shuffle that reads a lane outside its mask, and two
threads that touch a byte, one of them writing, without a barrier of their block in between.

    text.py        PTX text to basic blocks          memory.py      address spaces, loads, stores
    translate.py   a basic block to Python           races.py       who touched a byte last
    arithmetic.py  what NumPy does not offer         traffic.py     sectors and wavefronts
    machine.py     scheduling, barriers, shuffles
"""

from .machine import counting, run
from .text import PTXError, kernel

__all__ = ["PTXError", "counting", "kernel", "run"]
