"""Trying something in a process of its own, whose death or endless loop harms nobody."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import warnings
from collections.abc import Callable

CPU_SECONDS = 1               # the structure of sound files takes milliseconds
WALL_SECONDS = 120            # disks may be slow, loops are not
MEMORY_BYTES = 1 << 28        # on top of what the process has already
_FATAL = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL,
          signal.SIGALRM, signal.SIGXCPU)


def tried(attempt: Callable[[], object]):
    """What the attempt returns (a JSON value) in a copy of this process; None if the copy died or
    went beyond limits."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # of threads, which the copy does not use
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _attempt(attempt, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(answer) if status == 0 and answer else None


def _attempt(attempt: Callable[[], object], writing: int):
    """Run in the copy; never returns."""
    try:
        _limit()
        answer = json.dumps(attempt()).encode()
        while answer:
            answer = answer[os.write(writing, answer):]
        os._exit(0)
    finally:
        os._exit(1)


def _limit():
    """Die alone, silently and soon."""
    faulthandler.disable()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    for number in _FATAL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FATAL)
    signal.alarm(WALL_SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_CPU, CPU_SECONDS)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY_BYTES)


def _lower(what: int, value: int):
    _, most = resource.getrlimit(what)
    resource.setrlimit(what, (value if most == resource.RLIM_INFINITY else min(value, most), most))
