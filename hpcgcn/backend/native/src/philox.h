/* Philox4x32-10, LANES / 2 counters at a time, one in each 64-bit lane. */
#ifndef HPCGCN_PHILOX_H
#define HPCGCN_PHILOX_H

#include "vector.h"

enum { COUNTERS = LANES / 2, DRAW_COLUMNS = 512 };

typedef struct {
    uint32_t word[2];
} philox_key;

typedef struct {
    vlong word[4];      /* only the lower 32 bits of a lane count */
} philox_state;

/* The upper halves of lanes may hold anything: multiply_low does not read them and the shift drops them. */
INLINE philox_state philox(philox_state c, philox_key key)
{
    const vlong m0 = (vlong){0} + 0xD2511F53u, m1 = (vlong){0} + 0xCD9E8D57u;
    uint32_t k0 = key.word[0], k1 = key.word[1];
    for (int round = 0; round < 10; round++) {
        vlong p0 = multiply_low(m0, c.word[0]), p1 = multiply_low(m1, c.word[2]);
        c.word[0] = (p1 >> 32) ^ c.word[1] ^ ((vlong){0} + k0);
        c.word[1] = p1;
        c.word[2] = (p0 >> 32) ^ c.word[3] ^ ((vlong){0} + k1);
        c.word[3] = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* Lane l draws block (l / 2) + (l odd) * COUNTERS / 2, so that interleaving leaves the blocks in order. */
INLINE vlong first_blocks(void)
{
    vlong blocks;
    for (int lane = 0; lane < COUNTERS; lane++)
        blocks[lane] = (uint64_t)(lane / 2 + lane % 2 * (COUNTERS / 2));
    return blocks;
}

/* The 16 random bits of columns first .. first + n of node `id`; first is a multiple of 8, and
 * `bits` has room for n rounded up to DRAW_PADDED. */
#define DRAW_PADDED(n) (((n) + COUNTERS * 8 - 1) / (COUNTERS * 8) * (COUNTERS * 8))

static inline void draw_bits(philox_key key, int64_t id, int64_t first, int64_t n, uint16_t *bits)
{
    const vlong low = (vlong){0} + 0xFFFFFFFFu, lanes = first_blocks();
    uint64_t node = (uint64_t)id;
    for (int64_t done = 0; done < n; done += COUNTERS * 8) {
        philox_state c = {{lanes + (uint64_t)((first + done) / 8), (vlong){0} + (node & 0xFFFFFFFFu),
                           (vlong){0} + (node >> 32), (vlong){0}}};
        c = philox(c, key);
        vlong pair0 = (c.word[0] & low) | (c.word[1] << 32), pair1 = (c.word[2] & low) | (c.word[3] << 32);
        *(vlong_any *)(bits + done) = interleave_even(pair0, pair1);
        *(vlong_any *)(bits + done + COUNTERS * 4) = interleave_odd(pair0, pair1);
    }
}

#endif
