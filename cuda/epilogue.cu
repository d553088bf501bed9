// The row-wise steps after a GEMM, fused: bias, LayerNorm, ReLU, dropout, and back.
// Blocks of (lanes, rows), eight columns per thread; common.cuh says which.
#include "common.cuh"

constexpr float LAYER_NORM_EPSILON = 1e-5f;

// All lanes of the warp must call.
template <bool ALIGNED>
__device__ inline void apply_dropout(float (&v)[8], unsigned k0, unsigned k1, long long id, int first_column, int tile,
                                     int lanes, unsigned threshold, float keep_scale) {
    unsigned r[8];
    random_own<ALIGNED>(k0, k1, id, first_column, tile, lanes, r);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = r[i] >= threshold ? v[i] * keep_scale : 0.0f;
}

// out = dropout(x); out may be x.
template <bool ALIGNED>
__global__ void dropout(const float *x, float *out, const long long *ids, long long n, int width, unsigned k0,
                        unsigned k1, const unsigned *key, unsigned threshold, float keep_scale) {
    const int lanes = blockDim.x;
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < n;                            // rows past the end stay for the shuffles
    const int end = live ? width : 0;
    const long long id = live ? ids[row] : 0;
    use_key(key, k0, k1);
    for (int tile = 0; tile < width; tile += lanes * 8) {
        float v[8];
        load_own<ALIGNED>(x + row * width, tile, lanes, end, v);
        apply_dropout<ALIGNED>(v, k0, k1, id, 0, tile, lanes, threshold, keep_scale);
        store_own<ALIGNED>(out + row * width, tile, lanes, end, v);
    }
}

__global__ void random_bits(const long long *ids, unsigned short *out, long long n, int width, unsigned k0,
                            unsigned k1, const unsigned *key) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    use_key(key, k0, k1);
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8) {
        unsigned r[8];
        random8(k0, k1, ids[row], c / 8, r);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (c + i < width) out[row * width + c + i] = (unsigned short)r[i];
    }
}

// v = y + bias at the thread's columns, 0 from `end` on.
template <bool ALIGNED>
__device__ inline void load_biased(const float *y, const float *bias, int tile, int lanes, int end, float (&v)[8]) {
    load_own<ALIGNED>(y, tile, lanes, end, v);
    if (bias) {
        float b[8];
        load_own<ALIGNED>(bias, tile, lanes, end, b);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] += b[i];
    }
}

// The last step for a thread's columns of a row, with v = y + bias: writes y, xhat and out. All lanes must call.
template <bool ALIGNED>
__device__ inline void finish_forward(float (&v)[8], float *y, float *out, const float *bias, const float *gamma,
                                      const float *beta, float *xhat, long long id, int tile, int lanes, int end,
                                      float mean, float my_rstd, unsigned k0, unsigned k1, unsigned threshold,
                                      float keep_scale, int first_column) {
    if (bias) store_own<ALIGNED>(y, tile, lanes, end, v);
    if (gamma) {
        float g[8], b[8];
        load_own<ALIGNED>(gamma, tile, lanes, end, g);
        load_own<ALIGNED>(beta, tile, lanes, end, b);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = (v[i] - mean) * my_rstd;
        store_own<ALIGNED>(xhat, tile, lanes, end, v);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = v[i] * g[i] + b[i];
    }
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = v[i] <= 0.0f ? 0.0f : v[i];      // not fmaxf: NaN must stay
    if (threshold)
        apply_dropout<ALIGNED>(v, k0, k1, id, first_column, tile, lanes, threshold, keep_scale);
    store_own<ALIGNED>(out, tile, lanes, end, v);
}

// y += bias; v = LayerNorm(y) if gamma, else y; out = dropout(relu(v)). The lanes cover rows of up to 256 columns at
// once, which stay in registers; the second and third pass over a wider row find it in the cache.
template <bool ALIGNED>
__global__ void epilogue_forward(float *y, float *out, const float *bias, const float *gamma, const float *beta,
                                 float *xhat, float *rstd, const long long *ids, long long n, int width, unsigned k0,
                                 unsigned k1, const unsigned *key, unsigned threshold, float keep_scale,
                                 int first_column) {
    const int lanes = blockDim.x, step = lanes * 8;
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < n;                            // rows past the end stay for the shuffles
    const int end = live ? width : 0;
    float *my_y = y + row * width;
    float mean = 0.0f, my_rstd = 1.0f, held[8];
    load_biased<ALIGNED>(my_y, bias, 0, lanes, end, held);
    if (gamma) {
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) sum += held[i];
        for (int tile = step; tile < end; tile += step) {
            float v[8];
            load_biased<ALIGNED>(my_y, bias, tile, lanes, end, v);
#pragma unroll
            for (int i = 0; i < 8; i++) sum += v[i];
        }
        mean = lane_sum(sum, lanes) / (float)width;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (own_column<ALIGNED>(0, lanes, i) < width) squares += (held[i] - mean) * (held[i] - mean);
        for (int tile = step; tile < end; tile += step) {
            float v[8];
            load_biased<ALIGNED>(my_y, bias, tile, lanes, end, v);
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (own_column<ALIGNED>(tile, lanes, i) < width) squares += (v[i] - mean) * (v[i] - mean);
        }
        my_rstd = 1.0f / sqrtf(lane_sum(squares, lanes) / (float)width + LAYER_NORM_EPSILON);
        if (live && threadIdx.x == 0) rstd[row] = my_rstd;
    }
    const long long id = threshold && live ? ids[row] : 0;
    use_key(key, k0, k1);
    for (int tile = 0; tile < width; tile += step) {
        if (tile) load_biased<ALIGNED>(my_y, bias, tile, lanes, end, held);
        finish_forward<ALIGNED>(held, my_y, out + row * width, bias, gamma, beta, xhat + row * width, id, tile, lanes,
                                end, mean, my_rstd, k0, k1, threshold, keep_scale, first_column);
    }
}

// dv = dout * scale where out != 0, at the thread's columns.
template <bool ALIGNED>
__device__ inline void load_dv(const float *dout, const float *out, float scale, int tile, int lanes, int end,
                               float (&dv)[8]) {
    float o[8];
    load_own<ALIGNED>(dout, tile, lanes, end, dv);
    load_own<ALIGNED>(out, tile, lanes, end, o);
#pragma unroll
    for (int i = 0; i < 8; i++) dv[i] = o[i] != 0.0f ? dv[i] * scale : 0.0f;
}

// The column sums of the backward pass go to `partials`, a strip of `slots * width` a block: dgamma, dbeta (if NORM),
// dbias (if with_bias). A row of threads puts its own sums into a strip of shared memory first, in which neighbouring
// lanes write neighbouring words: sum i of a thread is at i * stride + its lane. Ends with the sums of all rows of
// threads, in their order.
template <bool ALIGNED>
__device__ inline void add_strips(const float *strips, int rows, int slots, int stride, int width, float *partials) {
    __syncthreads();
    const int threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (int i = thread; i < slots * width; i += threads) {
        const int slot = i / width, column = i - slot * width;
        const int place = slot * 8 * stride + place_of_column<ALIGNED>(column, blockDim.x, stride);
        float sum = 0.0f;
        for (int k = 0; k < rows; k++) sum += strips[k * slots * 8 * stride + place];
        partials[(long long)blockIdx.x * slots * width + i] = sum;
    }
}

// dy from dout; dy may be dout. Rows of up to 256 columns, which the lanes cover at once: every array is read once, and
// a thread keeps the sums of its eight columns in registers until the end.
template <bool ALIGNED, bool NORM>
__global__ void epilogue_backward(const float *dout, const float *out, float *dy, float scale, const float *gamma,
                                  const float *xhat, const float *rstd, float *partials, int with_bias, long long n,
                                  int width) {
    extern __shared__ float dynamic_shared[];
    const int lanes = blockDim.x, rows = blockDim.y;
    float gamma_sum[8] = {}, beta_sum[8] = {}, bias_sum[8] = {}, g[8] = {};
    if (NORM) load_own<ALIGNED>(gamma, 0, lanes, width, g);
    for (long long first = (long long)blockIdx.x * rows; first < n; first += (long long)gridDim.x * rows) {
        const long long row = first + threadIdx.y, at = row * width;
        const int end = row < n ? width : 0;              // rows past the end stay for the shuffles, with zeros
        float dv[8], h[8] = {}, d[8];
        load_dv<ALIGNED>(dout + at, out + at, scale, 0, lanes, end, dv);
        if (NORM) {
            load_own<ALIGNED>(xhat + at, 0, lanes, end, h);
            float mean1 = 0.0f, mean2 = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) mean1 += dv[i] * g[i], mean2 += dv[i] * g[i] * h[i];
            mean1 = lane_sum(mean1, lanes) / (float)width;
            mean2 = lane_sum(mean2, lanes) / (float)width;
            const float my_rstd = row < n ? rstd[row] : 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                d[i] = my_rstd * (dv[i] * g[i] - mean1 - h[i] * mean2);
                gamma_sum[i] += dv[i] * h[i], beta_sum[i] += dv[i];
            }
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) d[i] = dv[i];
        }
        store_own<ALIGNED>(dy + at, 0, lanes, end, d);
#pragma unroll
        for (int i = 0; i < 8; i++) bias_sum[i] += d[i];
    }
    const int slots = (NORM ? 2 : 0) + with_bias;
    float *mine = dynamic_shared + threadIdx.y * slots * 8 * lanes + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (NORM) mine[i * lanes] = gamma_sum[i], mine[(8 + i) * lanes] = beta_sum[i];
        if (with_bias) mine[((NORM ? 16 : 0) + i) * lanes] = bias_sum[i];
    }
    add_strips<ALIGNED>(dynamic_shared, rows, slots, lanes, width, partials);
}

// The same for wider rows: two passes over a row, the second of which finds it in the cache, and sums in memory: in
// strips of shared memory as above (of the lanes of all tiles) or, where these do not fit, a strip of `partials` for
// each row of threads. A thread always meets the same columns, so strips need no barrier before the end.
template <bool ALIGNED, bool NORM, bool SHARED>
__global__ void epilogue_backward_wide(const float *dout, const float *out, float *dy, float scale,
                                       const float *gamma, const float *xhat, const float *rstd, float *partials,
                                       int with_bias, long long n, int width) {
    extern __shared__ float dynamic_shared[];
    const int lanes = blockDim.x, step = lanes * 8, rows = blockDim.y, stride = (width + step - 1) / step * lanes;
    const int slots = (NORM ? 2 : 0) + with_bias;
    float *shared_sums = dynamic_shared + threadIdx.y * slots * 8 * stride + threadIdx.x;
    float *global_sums = partials + ((long long)blockIdx.x * rows + threadIdx.y) * slots * width;
    const auto add = [&](int slot, int tile, int i, float value) {
        const int column = own_column<ALIGNED>(tile, lanes, i);
        if (SHARED) shared_sums[(slot * 8 + i) * stride + tile / 8] += value;
        else if (column < width) global_sums[slot * width + column] += value;
    };
    for (int tile = 0; tile < width; tile += step)
        for (int i = 0; i < 8; i++)
            for (int slot = 0; slot < slots; slot++) {
                const int column = own_column<ALIGNED>(tile, lanes, i);
                if (SHARED) shared_sums[(slot * 8 + i) * stride + tile / 8] = 0.0f;
                else if (column < width) global_sums[slot * width + column] = 0.0f;
            }

    for (long long first = (long long)blockIdx.x * rows; first < n; first += (long long)gridDim.x * rows) {
        const long long row = first + threadIdx.y;
        const int end = row < n ? width : 0;              // rows past the end stay for the shuffles
        const long long at = row * width;
        float mean1 = 0.0f, mean2 = 0.0f, my_rstd = 0.0f;
        if (NORM) {
            for (int tile = 0; tile < end; tile += step) {
                float dv[8], g[8], h[8];
                load_dv<ALIGNED>(dout + at, out + at, scale, tile, lanes, end, dv);
                load_own<ALIGNED>(gamma, tile, lanes, end, g);
                load_own<ALIGNED>(xhat + at, tile, lanes, end, h);
#pragma unroll
                for (int i = 0; i < 8; i++) mean1 += dv[i] * g[i], mean2 += dv[i] * g[i] * h[i];
            }
            mean1 = lane_sum(mean1, lanes) / (float)width;
            mean2 = lane_sum(mean2, lanes) / (float)width;
            if (row < n) my_rstd = rstd[row];
        }
        for (int tile = 0; tile < end; tile += step) {
            float dv[8], d[8];
            load_dv<ALIGNED>(dout + at, out + at, scale, tile, lanes, end, dv);
            if (NORM) {
                float g[8], h[8];
                load_own<ALIGNED>(gamma, tile, lanes, end, g);
                load_own<ALIGNED>(xhat + at, tile, lanes, end, h);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    d[i] = my_rstd * (dv[i] * g[i] - mean1 - h[i] * mean2);
                    add(0, tile, i, dv[i] * h[i]);
                    add(1, tile, i, dv[i]);
                }
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) d[i] = dv[i];
            }
            store_own<ALIGNED>(dy + at, tile, lanes, end, d);
            if (with_bias) {
#pragma unroll
                for (int i = 0; i < 8; i++) add(slots - 1, tile, i, d[i]);
            }
        }
    }
    if (SHARED) add_strips<ALIGNED>(dynamic_shared, rows, slots, stride, width, partials);
}
