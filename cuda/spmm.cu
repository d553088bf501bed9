// Sparse times dense on CSR: a thread owns VEC columns of the output and keeps them in registers.
//
// Rows come in three kinds, listed by the host once a matrix (hpcgcn/backend/cuda_sparse.py):
//   short rows    LANES threads per row, 32 / LANES rows per warp                            spmm_short
//   longer rows   a warp a row; where LANES < 32 the warp's groups share the row         spmm_long
//   hubs          cut into segments, a warp each, partial sums added in order            spmm_long, spmm_combine
// blockIdx.y is the tile of LANES * VEC columns. No atomics: the order of every sum depends on the matrix alone.
//
// a_e = weights[entry[e]] * row_scale[i] * column_scale[j]; null pointers mean 1, a null `entry` means e itself
// (a transposed matrix reads the weights of the original through `entry`).
//
// Rows of x are `pitch` elements apart. Where the width is no multiple of VEC, the pitch is, and what lies between is
// read and added up in vain, but not written. Indices, weights and sums pass the caches by; rows of x stay.
#include "common.cuh"

constexpr int BATCH = 4;          // rows of x that a thread asks for before it uses the first: hides their latency

__device__ inline float entry_value(const float *weights, const long long *entry, const float *column_scale,
                                    long long e, int j) {
    float a = weights ? load_once(weights + (entry ? load_once(entry + e) : e)) : 1.0f;
    return column_scale ? a * column_scale[j] : a;
}

// sum += a[k] * x[j[k], column:column + VEC] for the k that are wanted, in their order; where there is a mask, an x
// counts mask_scale times if its mask is not 0, and not at all if it is.
template <typename X, int VEC>
__device__ inline void add_batch(const int (&j)[BATCH], const float (&a)[BATCH], const bool (&wanted)[BATCH],
                                 const X *x, const float *mask, float mask_scale, int width, int pitch,
                                 int column, float (&sum)[VEC]) {
    float v[BATCH][VEC] = {};
#pragma unroll
    for (int k = 0; k < BATCH; k++)
        if (wanted[k]) load_pack(x + (long long)j[k] * pitch + column, v[k]);
    if (mask) {
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            float m[VEC] = {};
            if (wanted[k]) load_pack(mask + (long long)j[k] * width + column, m);
#pragma unroll
            for (int i = 0; i < VEC; i++) v[k][i] = m[i] != 0.0f ? v[k][i] * mask_scale : 0.0f;
        }
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++)
#pragma unroll
        for (int i = 0; i < VEC; i++) sum[i] = fmaf(a[k], v[k][i], sum[i]);
}

// out[row, column:column + VEC] = (or +=) row_scale[row] * sum, without what is past the width.
template <int VEC>
__device__ inline void write_row(float *out, const float *row_scale, int row, int column, int width, int accumulate,
                                 float (&sum)[VEC]) {
    float *target = out + (long long)row * width + column;
    if (row_scale) {
#pragma unroll
        for (int i = 0; i < VEC; i++) sum[i] *= row_scale[row];
    }
    if (VEC > 1 && width % VEC) {
#pragma unroll
        for (int i = 0; i < VEC; i++)
            if (column + i < width) target[i] = accumulate ? target[i] + sum[i] : sum[i];
        return;
    }
    if (accumulate) {
        float old[VEC];
        load_pack(target, old);
#pragma unroll
        for (int i = 0; i < VEC; i++) sum[i] += old[i];
    }
    store_once(target, sum);
}

// Blocks of (LANES, rows); rows (n_rows,) lists the rows to do.
template <typename X, int VEC, int LANES>
__global__ void spmm_short(const int *rows, int n_rows, const long long *indptr, const long long *ends,
                           const int *indices, const long long *entry, const float *weights, const float *row_scale,
                           const float *column_scale, const X *x, const float *mask, float mask_scale, float *out,
                           int width, int pitch, int accumulate) {
    const int item = blockIdx.x * blockDim.y + threadIdx.y;
    const int column = (blockIdx.y * LANES + threadIdx.x) * VEC;
    if (item >= n_rows || column >= width) return;
    const int row = rows[item];
    const long long end = ends[row];
    float sum[VEC] = {};
    for (long long e = indptr[row]; e < end; e += BATCH) {
        int j[BATCH];
        float a[BATCH];
        bool wanted[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            wanted[k] = e + k < end;
            j[k] = wanted[k] ? load_once(indices + e + k) : 0;
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            a[k] = wanted[k] ? entry_value(weights, entry, column_scale, e + k, j[k]) : 0.0f;
        add_batch(j, a, wanted, x, mask, mask_scale, width, pitch, column, sum);
    }
    write_row(out, row_scale, row, column, width, accumulate, sum);
}

// Blocks of (32, warps); items (n_items,) of (row, segment of the row, slot or -1, unused). An item with a slot writes
// its sum to partials[slot - first_slot], rows of the width rounded up to VEC; one without is a whole row.
template <typename X, int VEC, int LANES>
__global__ void spmm_long(const int4 *items, int n_items, int segment_length, int first_slot, float *partials,
                          const long long *indptr, const long long *ends, const int *indices,
                          const long long *entry, const float *weights, const float *row_scale,
                          const float *column_scale, const X *x, const float *mask, float mask_scale, float *out,
                          int width, int pitch, int accumulate) {
    constexpr int GROUPS = 32 / LANES;
    const int partial_pitch = (width + VEC - 1) / VEC * VEC;
    const int number = blockIdx.x * blockDim.y + threadIdx.y;
    if (number >= n_items) return;                       // the whole warp leaves
    const int4 item = items[number];
    const int lane = threadIdx.x, group = lane / LANES;
    const int column = (blockIdx.y * LANES + lane % LANES) * VEC;
    long long begin = indptr[item.x], end = ends[item.x];
    if (item.z >= 0) {
        begin += (long long)item.y * segment_length;
        end = min(end, begin + segment_length);
    }
    float sum[VEC] = {};
    for (long long base = begin; base < end; base += 32) {
        // Each lane fetches one entry, then all 32 are handed round: one load of indices for 32 rows of x.
        const int count = (int)min(32ll, end - base);
        int my_j = 0;
        float my_a = 0.0f;
        if (lane < count) {
            my_j = load_once(indices + base + lane);
            my_a = entry_value(weights, entry, column_scale, base + lane, my_j);
        }
        for (int first = 0; first < count; first += GROUPS * BATCH) {
            int j[BATCH];
            float a[BATCH];
            bool wanted[BATCH];
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                const int source = first + k * GROUPS + group;
                j[k] = __shfl_sync(FULL_WARP, my_j, source & 31);
                a[k] = __shfl_sync(FULL_WARP, my_a, source & 31);
                wanted[k] = source < count && column < width;
                if (!wanted[k]) a[k] = 0.0f;
            }
            add_batch(j, a, wanted, x, mask, mask_scale, width, pitch, column, sum);
        }
    }
#pragma unroll
    for (int offset = LANES; offset < 32; offset *= 2)
#pragma unroll
        for (int i = 0; i < VEC; i++) sum[i] += __shfl_xor_sync(FULL_WARP, sum[i], offset);
    if (group != 0 || column >= width) return;
    if (item.z >= 0) {
        store_pack(partials + (long long)(item.z - first_slot) * partial_pitch + column, sum);
    } else {
        write_row(out, row_scale, item.x, column, width, accumulate, sum);
    }
}

// Blocks of (32, hubs); hubs (n_hubs,) of (row, first slot, number of slots, unused): adds a hub's segments in order.
template <int VEC>
__global__ void spmm_combine(const int4 *hubs, int n_hubs, int first_slot, const float *partials,
                             const float *row_scale, float *out, int width, int accumulate) {
    const int partial_pitch = (width + VEC - 1) / VEC * VEC;
    const int number = blockIdx.x * blockDim.y + threadIdx.y;
    const int column = (blockIdx.y * 32 + threadIdx.x) * VEC;
    if (number >= n_hubs || column >= width) return;
    const int4 hub = hubs[number];
    float sum[VEC] = {};
    for (int slot = hub.y; slot < hub.y + hub.z; slot++) {
        float part[VEC];
        load_pack(partials + (long long)(slot - first_slot) * partial_pitch + column, part);
#pragma unroll
        for (int i = 0; i < VEC; i++) sum[i] += part[i];
    }
    write_row(out, row_scale, hub.x, column, width, accumulate, sum);
}

// Blocks of (8, rows): out_weights[e] = dropout of weights[e] (null: 1), drawn for (ids[row], column).
__global__ void sparse_dropout(const long long *indptr, const int *indices, const float *weights, float *out_weights,
                               const long long *ids, int first_row, int n_rows, unsigned k0, unsigned k1,
                               const unsigned *key, unsigned threshold, float scale) {
    const int row = first_row + blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= first_row + n_rows) return;
    const unsigned long long id = (unsigned long long)ids[row];
    use_key(key, k0, k1);
    for (long long e = indptr[row] + threadIdx.x; e < indptr[row + 1]; e += blockDim.x) {
        float value = weights ? weights[e] : 1.0f;
        if (threshold) {
            const unsigned column = (unsigned)indices[e];
            unsigned w[4];
            philox(column / 8, (unsigned)id, (unsigned)(id >> 32), k0, k1, w);
            const unsigned pair = column % 8 / 2;
            const unsigned word = pair == 0 ? w[0] : pair == 1 ? w[1] : pair == 2 ? w[2] : w[3];
            const unsigned bits = (word >> (16 * (column % 2))) & 0xffffu;
            value = bits >= threshold ? value * scale : 0.0f;
        }
        out_weights[e] = value;
    }
}
