"""The graph in parts, one per host; the ranks of a host divide the columns: halos count hosts.

    groups          which ranks are one host, and which have the same columns
    loading         which rows of a part a rank reads
    shared          one copy of an object's arrays per host
    host_graph      the part of a host, held once, and the rows of each of its ranks
    layout          how rows are cut into blocks, and blocks into shares
    aggregations    a hop: transpose within the host, halo exchange across hosts, transpose back
"""
