"""Several runs in one process, as in a notebook or a sweep."""

import gc

import pytest
from graphs import random_graph

from hpcgcn.config import make_config
from hpcgcn.nn.fields import Field
from hpcgcn.train.run import train_model

pytestmark = pytest.mark.mpi_skip


def test_a_run_does_not_keep_the_memory_of_those_before(tmp_path):
    alive = []
    gc.disable()             # Python would come round to it, but not because arrays are large
    try:
        for number in range(3):
            train_model(random_graph(), make_config({"epochs": 1, "quiet": True,
                                                     "output": str(tmp_path), "name": str(number)}))
            alive.append(sum(type(thing) is Field for thing in gc.get_objects()))
    finally:
        gc.enable()
    assert alive[0] > 0 and alive == alive[:1] * 3
