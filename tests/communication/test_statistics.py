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
    """Two exchanges of hop 1 (blocks of a transpose) are one column; shares are of all ranks together."""
    from types import SimpleNamespace

    from hpcgcn.train.accounting import EpochLedger
    exchanges = [(1, "forward", SimpleNamespace(statistics=Statistics())), (1, "forward", SimpleNamespace(statistics=Statistics())),
                 (2, "backward", SimpleNamespace(statistics=Statistics()))]
    ledger = EpochLedger(comm, exchanges)
    for _ in range(2):
        for number, (_, _, exchange) in enumerate(exchanges):
            exchange.statistics.count_message(100 * (number + 1), 100, 4, 800)
            exchange.statistics.count_use(stale=number == 0)
            exchange.statistics.wait_seconds, exchange.statistics.flight_seconds = 0.25, 1.0
        row = ledger.collect(seconds=5.0, allreduce=0.5, rate=2.0)
        if comm.rank == 0:
            n = comm.size
            assert (row["bytes_sent"], row["bytes_forward_1"], row["bytes_backward_2"]) == (600 * n, 300 * n, 300 * n)
            assert (row["bytes_parameters"], row["bytes_uncompressed"]) == (12 * n, 2400 * n)
            assert (row["stale_share"], row["hidden_share"], row["rate"]) == (1 / 3, 0.75, 2.0)
            assert (row["wait_seconds"], row["allreduce_seconds"], row["compute_seconds"]) == (0.75 * n, 0.5 * n, 3.75 * n)
    if comm.rank == 0:
        summary = ledger.summary()
        assert summary["bytes_sent"] == 1200 * comm.size and summary["compression"] == 4.0
        assert summary["by_rank"][-1] == {"rank": comm.size - 1, "wait_seconds": 0.75, "pack_seconds": 0.0,
                                          "unpack_seconds": 0.0, "allreduce_seconds": 0.5, "compute_seconds": 3.75}
