"""Every synchronisation in the sources is needed: without it a test fails.

`python mutations.py` shows which.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from mutations import failing_tests, mutations

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
def test_no_synchronisation_can_be_deleted(stand_in):
    everything = mutations()
    kinds = {word for m in everything
             for word in ("__syncthreads", "record", "wait_event", "synchronize") if word in m.call}
    # the search finds them at all
    assert kinds == {"__syncthreads", "record", "wait_event", "synchronize"}
    with ThreadPoolExecutor(max_workers=2) as pool:
        noticed = list(pool.map(failing_tests, everything))
    assert not [str(m) for m, failed in zip(everything, noticed) if not all(failed)]
