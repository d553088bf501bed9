"""Which ranks are one host, and which ranks of all hosts have the same columns."""

from __future__ import annotations

from collections import Counter

from hpcgcn.errors import ConfigError


class HostGroups:
    """Every rank has a host and a number on it. Collective."""

    def __init__(self, runtime):
        counts = Counter(runtime.hosts)
        self.n_hosts, self.per_host = len(counts), counts[0]
        if len(set(counts.values())) > 1:
            held = ", ".join(str(counts[host]) for host in range(self.n_hosts))
            raise ConfigError(f"parallel = 'hosts' needs equally many ranks on every host, and "
                              f"there are {held}: start them with mpirun --map-by "
                              f"ppr:{min(counts.values())}:node, or declare groups of ranks with "
                              "--ranks-per-host")
        self.host = runtime.hosts[runtime.rank]
        self.number = runtime.hosts[:runtime.rank].count(self.host)
        # Hosts one after another, whatever the order in which the launcher placed the ranks.
        self.everyone = runtime.split(0, self.host * self.per_host + self.number)
        self.within = runtime.split(self.host, self.number)
        self.across = runtime.split(self.number, self.host)
