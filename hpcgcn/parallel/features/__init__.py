"""Ranks aggregate columns of all nodes and update rows of some: constant volume (MixGCN).

    loading         which rows a rank updates
    whole_graph     the adjacency, once per host
    block_order     an order of rows in which blocks gather from few blocks
    layout          who owns which rows and columns
    transposes      rows become columns and back
    aggregations    a hop: transpose, product, transpose
    tuning          how many blocks are fastest
"""
