"""The trace of a run: clocks are compared before its epochs, and all is written after them."""

from __future__ import annotations

import contextlib
import logging

from hpcgcn.mpi.runtime import Runtime
from hpcgcn.mpi.world import on_root
from hpcgcn.parallel.aggregation import Aggregations
from hpcgcn.timeline.file import Recording
from hpcgcn.trace.recorder import Trace
from hpcgcn.train.folder import RunFolder

log = logging.getLogger(__name__)


@contextlib.contextmanager
def recording(runtime: Runtime, folder: RunFolder, aggregations: Aggregations):
    """A block whose epochs are traced, if the run is. Collective; an error leaves no trace."""
    if not isinstance(runtime.trace, Trace):
        yield
        return
    made = Recording(runtime.comm, runtime.trace)
    yield
    if not runtime.trace.phases and runtime.rank == 0:
        log.warning("no epoch of the window that is to be traced was reached: --trace last:4 "
                    "records the last ones, whatever their number")
    text = made.collect(aggregations.work())
    on_root(runtime.comm, folder.write_trace, text)
