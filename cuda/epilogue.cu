// The row-wise steps after a GEMM, fused: bias, LayerNorm, ReLU, dropout, and back.
// Blocks of (lanes, rows), eight columns per thread: the eight that one Philox call serves.
#include "common.cuh"

constexpr float LAYER_NORM_EPSILON = 1e-5f;

// The draws of eight columns from any column on: they may lie in two blocks of eight. Every index is known to the
// compiler, so that the numbers stay in registers.
__device__ inline void random8_from(unsigned k0, unsigned k1, long long id, int column, unsigned (&r)[8]) {
    random8(k0, k1, id, column / 8, r);
    const int skipped = column % 8;
    if (skipped == 0) return;
    unsigned next[8], both[16];
    random8(k0, k1, id, column / 8 + 1, next);
#pragma unroll
    for (int i = 0; i < 8; i++) both[i] = r[i], both[i + 8] = next[i];
#pragma unroll
    for (int s = 1; s < 8; s++)
        if (s == skipped) {
#pragma unroll
            for (int i = 0; i < 8; i++) r[i] = both[i + s];
        }
}

__device__ inline void apply_dropout(float (&v)[8], unsigned k0, unsigned k1, long long id, int column,
                                     unsigned threshold, float keep_scale) {
    unsigned r[8];
    random8_from(k0, k1, id, column, r);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = r[i] >= threshold ? v[i] * keep_scale : 0.0f;
}

// out = dropout(x); out may be x.
template <bool ALIGNED>
__global__ void dropout(const float *x, float *out, const long long *ids, long long n, int width, unsigned k0,
                        unsigned k1, unsigned threshold, float keep_scale) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8) {
        float v[8];
        load<ALIGNED>(x + row * width, c, width, v);
        apply_dropout(v, k0, k1, ids[row], c, threshold, keep_scale);
        store<ALIGNED>(out + row * width, c, width, v);
    }
}

__global__ void random_bits(const long long *ids, unsigned short *out, long long n, int width, unsigned k0,
                            unsigned k1) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8) {
        unsigned r[8];
        random8(k0, k1, ids[row], c / 8, r);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (c + i < width) out[row * width + c + i] = (unsigned short)r[i];
    }
}

// v = y[row, c:c + 8] + bias, 0 past the width.
template <bool ALIGNED>
__device__ inline void load_biased(const float *y, const float *bias, int c, int width, float (&v)[8]) {
    load<ALIGNED>(y, c, width, v);
    if (bias) {
        float b[8];
        load<ALIGNED>(bias, c, width, b);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] += b[i];
    }
}

// The last step for eight columns of a row, with v = y + bias: writes y, xhat and out.
template <bool ALIGNED>
__device__ inline void finish_forward(float (&v)[8], float *y, float *out, const float *bias, const float *gamma,
                                      const float *beta, float *xhat, long long id, int c, int width, float mean,
                                      float my_rstd, unsigned k0, unsigned k1, unsigned threshold, float keep_scale,
                                      int first_column) {
    if (bias) store<ALIGNED>(y, c, width, v);
    if (gamma) {
        float g[8], b[8];
        load<ALIGNED>(gamma, c, width, g);
        load<ALIGNED>(beta, c, width, b);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = (v[i] - mean) * my_rstd;
        store<ALIGNED>(xhat, c, width, v);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = v[i] * g[i] + b[i];
    }
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = v[i] <= 0.0f ? 0.0f : v[i];      // not fmaxf: NaN must stay
    if (threshold) apply_dropout(v, k0, k1, id, first_column + c, threshold, keep_scale);
    store<ALIGNED>(out, c, width, v);
}

// y += bias; v = LayerNorm(y) if gamma, else y; out = dropout(relu(v)). The lanes cover rows of up to 256 columns at
// once, which stay in registers; the second and third pass over a wider row find it in the cache.
template <bool ALIGNED>
__global__ void epilogue_forward(float *y, float *out, const float *bias, const float *gamma, const float *beta,
                                 float *xhat, float *rstd, const long long *ids, long long n, int width, unsigned k0,
                                 unsigned k1, unsigned threshold, float keep_scale, int first_column) {
    const int lanes = blockDim.x, step = lanes * 8, first = threadIdx.x * 8;
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < n;                            // rows past the end stay for the shuffles
    const int end = live ? width : 0;
    float *my_y = y + row * width;
    float mean = 0.0f, my_rstd = 1.0f, held[8] = {};
    if (first < end) load_biased<ALIGNED>(my_y, bias, first, width, held);
    if (gamma) {
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) sum += held[i];
        for (int c = first + step; c < end; c += step) {
            float v[8];
            load_biased<ALIGNED>(my_y, bias, c, width, v);
#pragma unroll
            for (int i = 0; i < 8; i++) sum += v[i];
        }
        mean = lane_sum(sum, lanes) / (float)width;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (first + i < width) squares += (held[i] - mean) * (held[i] - mean);
        for (int c = first + step; c < end; c += step) {
            float v[8];
            load_biased<ALIGNED>(my_y, bias, c, width, v);
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (c + i < width) squares += (v[i] - mean) * (v[i] - mean);
        }
        my_rstd = 1.0f / sqrtf(lane_sum(squares, lanes) / (float)width + LAYER_NORM_EPSILON);
        if (live && threadIdx.x == 0) rstd[row] = my_rstd;
    }
    if (first >= end) return;
    const long long id = threshold ? ids[row] : 0;
    for (int c = first; c < width; c += step) {
        if (c > first) load_biased<ALIGNED>(my_y, bias, c, width, held);
        finish_forward<ALIGNED>(held, my_y, out + row * width, bias, gamma, beta, xhat + row * width, id, c, width, mean,
                                my_rstd, k0, k1, threshold, keep_scale, first_column);
    }
}

// dv = dout * scale where out != 0; dxhat = dv * gamma.
template <bool ALIGNED>
__device__ inline void load_dv(const float *dout, const float *out, float scale, int c, int width, float (&dv)[8]) {
    float o[8];
    load<ALIGNED>(dout, c, width, dv);
    load<ALIGNED>(out, c, width, o);
#pragma unroll
    for (int i = 0; i < 8; i++) dv[i] = o[i] != 0.0f ? dv[i] * scale : 0.0f;
}

// The column sums of the backward pass go to `partials`, a strip of `slots * width` a block: dgamma, dbeta (if NORM),
// dbias (if with_bias). A row of threads puts its own sums into a strip of shared memory first, in which neighbouring
// lanes write neighbouring words: sum i of the eight columns of lane l is at i * lanes + l. Ends with the sums of all
// rows of threads, in their order.
__device__ inline void add_strips(const float *strips, int rows, int slots, int lanes, int width, float *partials) {
    __syncthreads();
    const int threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (int i = thread; i < slots * width; i += threads) {
        const int slot = i / width, column = i - slot * width;
        const int place = (slot * 8 + column % 8) * lanes + column / 8;
        float sum = 0.0f;
        for (int k = 0; k < rows; k++) sum += strips[k * slots * 8 * lanes + place];
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
    const int lanes = blockDim.x, rows = blockDim.y, c = threadIdx.x * 8;
    float gamma_sum[8] = {}, beta_sum[8] = {}, bias_sum[8] = {}, g[8] = {};
    if (NORM && c < width) load<ALIGNED>(gamma, c, width, g);
    for (long long first = (long long)blockIdx.x * rows; first < n; first += (long long)gridDim.x * rows) {
        const long long row = first + threadIdx.y, at = row * width;
        const bool live = row < n && c < width;           // others stay for the shuffles, with zeros
        float dv[8] = {}, h[8] = {}, d[8];
        if (live) {
            load_dv<ALIGNED>(dout + at, out + at, scale, c, width, dv);
            if (NORM) load<ALIGNED>(xhat + at, c, width, h);
        }
        if (NORM) {
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
        if (live) store<ALIGNED>(dy + at, c, width, d);
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
    add_strips(dynamic_shared, rows, slots, lanes, width, partials);
}

// The same for wider rows: two passes over a row, the second of which finds it in the cache, and sums in memory: in
// strips of shared memory as above (lanes: as many as it takes to cover the width) or, where these do not fit, a strip
// of `partials` for each row of threads. A thread always meets the same columns, so strips need no barrier before the
// end.
template <bool ALIGNED, bool NORM, bool SHARED>
__global__ void epilogue_backward_wide(const float *dout, const float *out, float *dy, float scale,
                                       const float *gamma, const float *xhat, const float *rstd, float *partials,
                                       int with_bias, long long n, int width) {
    extern __shared__ float dynamic_shared[];
    const int lanes = blockDim.x, step = lanes * 8, rows = blockDim.y, cover = (width + 7) / 8;
    const int slots = (NORM ? 2 : 0) + with_bias;
    float *shared_sums = dynamic_shared + threadIdx.y * slots * 8 * cover;
    float *global_sums = partials + ((long long)blockIdx.x * rows + threadIdx.y) * slots * width;
    const auto add = [&](int slot, int c, int i, float value) {
        if (SHARED) shared_sums[(slot * 8 + i) * cover + c / 8] += value;
        else if (c + i < width) global_sums[slot * width + c + i] += value;
    };
    for (int c = threadIdx.x * 8; c < width; c += step)
        for (int i = 0; i < 8; i++)
            for (int slot = 0; slot < slots; slot++) {
                if (SHARED) shared_sums[(slot * 8 + i) * cover + c / 8] = 0.0f;
                else if (c + i < width) global_sums[slot * width + c + i] = 0.0f;
            }

    for (long long first = (long long)blockIdx.x * rows; first < n; first += (long long)gridDim.x * rows) {
        const long long row = first + threadIdx.y;
        const int end = row < n ? width : 0;              // rows past the end stay for the shuffles
        const long long at = row * width;
        float mean1 = 0.0f, mean2 = 0.0f, my_rstd = 0.0f;
        if (NORM) {
            for (int c = threadIdx.x * 8; c < end; c += step) {
                float dv[8], g[8], h[8];
                load_dv<ALIGNED>(dout + at, out + at, scale, c, width, dv);
                load<ALIGNED>(gamma, c, width, g);
                load<ALIGNED>(xhat + at, c, width, h);
#pragma unroll
                for (int i = 0; i < 8; i++) mean1 += dv[i] * g[i], mean2 += dv[i] * g[i] * h[i];
            }
            mean1 = lane_sum(mean1, lanes) / (float)width;
            mean2 = lane_sum(mean2, lanes) / (float)width;
            if (row < n) my_rstd = rstd[row];
        }
        for (int c = threadIdx.x * 8; c < end; c += step) {
            float dv[8], d[8];
            load_dv<ALIGNED>(dout + at, out + at, scale, c, width, dv);
            if (NORM) {
                float g[8], h[8];
                load<ALIGNED>(gamma, c, width, g);
                load<ALIGNED>(xhat + at, c, width, h);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    d[i] = my_rstd * (dv[i] * g[i] - mean1 - h[i] * mean2);
                    add(0, c, i, dv[i] * h[i]);
                    add(1, c, i, dv[i]);
                }
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) d[i] = dv[i];
            }
            store<ALIGNED>(dy + at, c, width, d);
            if (with_bias) {
#pragma unroll
                for (int i = 0; i < 8; i++) add(slots - 1, c, i, d[i]);
            }
        }
    }
    if (SHARED) add_strips(dynamic_shared, rows, slots, cover, width, partials);
}
