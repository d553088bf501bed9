"""The trace of a run: clocks are compared before its epochs, and all is written after them."""

from __future__ import annotations

import contextlib

from hpcgcn.mpi.runtime import Runtime
from hpcgcn.mpi.world import on_root
from hpcgcn.timeline.file import Recording
from hpcgcn.trace.recorder import Trace
from hpcgcn.train.folder import RunFolder


@contextlib.contextmanager
def recording(runtime: Runtime, folder: RunFolder):
    """A block whose epochs are traced, if the run is. Collective; an error leaves no trace."""
    if not isinstance(runtime.trace, Trace):
        yield
        return
    made = Recording(runtime.comm, runtime.trace)
    yield
    text = made.collect()
    on_root(runtime.comm, folder.write_trace, text)
