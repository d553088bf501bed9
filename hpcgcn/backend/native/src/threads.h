/* How work is split: never so that a result depends on the number of threads. */
#ifndef HPCGCN_THREADS_H
#define HPCGCN_THREADS_H

#include <stdint.h>
#include <stdlib.h>

/* Fewer elements than this are done before a second thread has woken up. */
enum { SMALL_WORK = 1 << 15 };

/* Sums over rows are made of at most this many partial sums, added in order. */
enum { MAX_BLOCKS = 64, MIN_BLOCK_ROWS = 64 };

static inline int team_size(int64_t threads, int64_t work)
{
    return work < SMALL_WORK || threads < 1 ? 1 : (int)threads;
}

static inline int64_t block_rows(int64_t n)
{
    int64_t rows = (n + MAX_BLOCKS - 1) / MAX_BLOCKS;
    return rows < MIN_BLOCK_ROWS ? MIN_BLOCK_ROWS : rows;
}

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* One loop over rows or elements, split evenly. */
#define PARALLEL_FOR(team) _Pragma_text(omp parallel for schedule(static) num_threads(team) if (team > 1))
#define _Pragma_text(text) _Pragma(#text)

#endif
