"""What an exchange counts, and what a run makes of it."""

import dataclasses

from hpcgcn.exchange.statistics import Statistics


def test_messages_and_uses_add_up():
    statistics = Statistics()
    statistics.count_message(100, 80, 8, 400)
    statistics.count_message(10, 20, 0, 40)
    statistics.count_use(stale=True)
    statistics.count_use(stale=False)
    statistics.count_use(stale=True)
    assert (statistics.bytes_sent, statistics.bytes_received) == (110, 100)
    assert (statistics.bytes_parameters, statistics.bytes_uncompressed) == (8, 440)
    assert (statistics.uses, statistics.stale_uses) == (3, 2)


def test_reset_forgets_everything():
    statistics = Statistics(**{field.name: 1 for field in dataclasses.fields(Statistics)})
    statistics.reset()
    assert statistics == Statistics() and not any(dataclasses.astuple(statistics))


def test_a_ledger_adds_up_all_exchanges_and_begins_each_epoch_anew(comm):
    """Two exchanges of hop 1 (blocks of a transpose) are one column; shares are of all ranks."""
    from types import SimpleNamespace

    from hpcgcn.train.accounting import EpochLedger
    hops, n = ((1, "forward"), (1, "forward"), (2, "backward")), comm.size
    exchanges = [(*hop, SimpleNamespace(statistics=Statistics())) for hop in hops]
    ledger = EpochLedger(comm, exchanges)
    for _ in range(2):
        for number, (_, _, exchange) in enumerate(exchanges):
            counted = exchange.statistics
            counted.count_message(100 * (number + 1), 100, 4, 800)
            counted.count_use(stale=number == 0)
            counted.wait_seconds, counted.flight_seconds = 0.25, 1.0
        row = ledger.collect(seconds=5.0, allreduce=0.5, rate=2.0)
        if comm.rank == 0:
            expected = {"bytes_sent": 600 * n, "bytes_forward_1": 300 * n,
                        "bytes_backward_2": 300 * n, "bytes_parameters": 12 * n,
                        "bytes_uncompressed": 2400 * n, "stale_share": 1 / 3, "hidden_share": 0.75,
                        "rate": 2.0, "wait_seconds": 0.75 * n, "allreduce_seconds": 0.5 * n,
                        "compute_seconds": 3.75 * n}
            assert {name: row[name] for name in expected} == expected
    if comm.rank == 0:
        assert ledger.by_rank()[-1] == {
            "rank": n - 1, "wait_seconds": 0.75, "pack_seconds": 0.0, "unpack_seconds": 0.0,
            "allreduce_seconds": 0.5, "compute_seconds": 3.75}
