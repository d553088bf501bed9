"""Layers across ranks, chunks of nodes through a pipeline (GNNPipe), and the hybrid with several
partitions per stage.

    grid       ranks as stages x partitions
    division   where a model can be cut into stages, and which cut balances them
    storage    arrays of a stage: planned for the whole model, made for the stage's own part
    costs      what layers cost, measured
    chunk_schedule     the order in which a stage works on chunks
    matrices   the adjacency by chunks
    hops       aggregations of one chunk, with current or historical rows
    links      chunks from stage to stage
    stage      a stage's steps on a chunk
"""
