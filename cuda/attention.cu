// Attention over edges: logits, softmax and the weighted sum of a row's head by one warp, and back.
//
// The 32 lanes make the weights of 32 entries, one each, and hand them round by shuffles; then each lane adds up a column
// of the head. Weights are made anew for every 32 columns. Entries with a positive logit are summed apart from the others
// (hpcgcn/backend/attention.py says why, and what the arrays hold). No atomics: sums have the order of the entries.
#include "common.cuh"

constexpr float SLOPE = 0.2f;

__device__ inline float lowest() { return __uint_as_float(0xff800000u); }        // minus infinity

__device__ inline float leaky(float logit) { return logit > 0.0f ? logit : SLOPE * logit; }

// What the coefficient of head `head` of the edge from source to target (ids) is multiplied by.
__device__ inline float kept_edge(long long target, long long source, int head, int heads, unsigned k0, unsigned k1,
                                  unsigned threshold, float scale) {
    if (!threshold) return 1.0f;
    const unsigned blocks = (unsigned)((heads + 7) / 8);
    unsigned w[4];
    philox((unsigned)source * blocks + (unsigned)(head / 8), (unsigned)target,
           (unsigned)((unsigned long long)target >> 32), k0, k1, w);
    const int pair = head % 8 / 2;
    const unsigned word = pair == 0 ? w[0] : pair == 1 ? w[1] : pair == 2 ? w[2] : w[3];
    return ((word >> (16 * (head % 2))) & 0xffffu) >= threshold ? scale : 0.0f;
}

// Both sums += weight * x[j, column] for the entries that the lanes hold; all lanes call, `active` ones have a column.
__device__ inline void add_entries(int count, int my_j, float my_positive, float my_negative, const float *x, int width,
                                   int column, bool active, float &positive, float &negative) {
    for (int k = 0; k < count; k++) {
        const int j = __shfl_sync(FULL_WARP, my_j, k);
        const float up = __shfl_sync(FULL_WARP, my_positive, k), down = __shfl_sync(FULL_WARP, my_negative, k);
        const float value = active ? x[(long long)j * width + column] : 0.0f;
        positive = fmaf(up, value, positive);
        negative = fmaf(down, value, negative);
    }
}

// Blocks of (32, warps): a warp per row and head, of rows first_row .. first_row + n_rows.
__global__ void attend(const long long *indptr, const long long *ends, const int *indices, const float *x,
                       const float *source_logits, const float *target_logits, float *state, float *sums, float *out,
                       int first_row, int n_rows, int heads, int width, int first, int last, unsigned k0, unsigned k1,
                       const unsigned *key, unsigned threshold, float scale, const long long *row_ids, const long long *column_ids) {
    const long long item = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (item >= (long long)n_rows * heads) return;       // the whole warp leaves
    use_key(key, k0, k1);
    const int row = first_row + (int)(item / heads), head = (int)(item % heads), lane = threadIdx.x;
    const int columns = width / heads;
    const long long begin = indptr[row], end = ends[row], id = threshold ? row_ids[row] : 0;
    const float target_logit = target_logits[(long long)row * heads + head];
    float *own = state + (long long)row * 3 * heads + head;
    float peak = lowest(), total = 0.0f, share = 0.0f;
    if (!first) {
        if (lane == 0) peak = own[0], total = own[heads], share = own[2 * heads];
        peak = __shfl_sync(FULL_WARP, peak, 0);
        total = __shfl_sync(FULL_WARP, total, 0);
        share = __shfl_sync(FULL_WARP, share, 0);
    }
    float most = lowest();
    for (long long e = begin + lane; e < end; e += 32)
        most = fmaxf(most, leaky(source_logits[(long long)indices[e] * heads + head] + target_logit));
    most = fmaxf(peak, lane_max(most, 32));
    const float shrink = peak == lowest() ? 0.0f : expf(peak - most);
    total *= shrink, share *= shrink;
    for (int start = 0; start < columns; start += 32) {
        const int column = head * columns + start + lane;
        const bool active = start + lane < columns;
        float *upper = sums + (long long)row * 2 * width + column, *lower = upper + width;
        float positive = 0.0f, negative = 0.0f, sum = 0.0f, positive_sum = 0.0f;
        if (!first && active) positive = *upper * shrink, negative = *lower * shrink;
        for (long long base = begin; base < end; base += 32) {
            const int count = (int)min(32ll, end - base);
            int j = 0;
            float up = 0.0f, down = 0.0f;
            if (lane < count) {
                j = indices[base + lane];
                const float logit = source_logits[(long long)j * heads + head] + target_logit;
                float weight = expf(leaky(logit) - most);
                sum += weight;
                if (logit > 0.0f) positive_sum += weight;
                weight *= kept_edge(id, threshold ? column_ids[j] : 0, head, heads, k0, k1, threshold, scale);
                if (logit > 0.0f) up = weight; else down = weight;
            }
            add_entries(count, j, up, down, x, width, column, active, positive, negative);
        }
        if (start == 0) total += lane_sum(sum, 32), share += lane_sum(positive_sum, 32);
        const float factor = !last || total == 0.0f ? 1.0f : 1.0f / total;
        positive *= factor, negative *= factor;
        if (active) {
            *upper = positive, *lower = negative;
            if (last) out[(long long)row * width + column] = positive + negative;
        }
    }
    if (lane == 0) {
        own[0] = !last ? most : total == 0.0f ? 0.0f : most + logf(total);
        own[heads] = total;
        own[2 * heads] = !last || total == 0.0f ? share : share / total;
    }
}

// Blocks of (32, warps): a warp per row and head of the transpose, whose columns are the rows that attended.
__global__ void attend_backward(const long long *indptr, const long long *ends, const int *indices, const float *dout,
                                const float *facts, const float *x, const float *source_logits, float *dx,
                                float *dsource_logits, int first_row, int n_rows, int heads, int width, int accumulate,
                                unsigned k0, unsigned k1, const unsigned *key, unsigned threshold, float scale,
                                const long long *row_ids, const long long *column_ids) {
    const long long item = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (item >= (long long)n_rows * heads) return;       // the whole warp leaves
    use_key(key, k0, k1);
    const int row = first_row + (int)(item / heads), head = (int)(item % heads), lane = threadIdx.x;
    const int columns = width / heads;
    const long long begin = indptr[row], end = ends[row], id = threshold ? row_ids[row] : 0;
    const float source_logit = source_logits[(long long)row * heads + head];
    float product = 0.0f;
    for (int start = 0; start < columns; start += 32) {
        const int column = head * columns + start + lane;
        const bool active = start + lane < columns;
        float positive = 0.0f, negative = 0.0f, taken = 0.0f;
        for (long long base = begin; base < end; base += 32) {
            const int count = (int)min(32ll, end - base);
            int i = 0;
            float up = 0.0f, down = 0.0f;
            if (lane < count) {
                i = indices[base + lane];
                const float *of_row = facts + (long long)i * 3 * heads + head;
                const float logit = source_logit + of_row[0];
                float weight = expf(leaky(logit) - of_row[heads]);
                taken += weight * of_row[2 * heads] * (logit > 0.0f ? 1.0f : SLOPE);
                weight *= kept_edge(threshold ? column_ids[i] : 0, id, head, heads, k0, k1, threshold, scale);
                if (logit > 0.0f) up = weight; else down = weight;
            }
            add_entries(count, i, up, down, dout, width, column, active, positive, negative);
        }
        if (start == 0) product -= taken;
        if (active) {
            const long long at = (long long)row * width + column;
            product += (positive + SLOPE * negative) * x[at];
            dx[at] = positive + negative + (accumulate ? dx[at] : 0.0f);
        }
    }
    product = lane_sum(product, 32);
    if (lane == 0) dsource_logits[(long long)row * heads + head] = product;
}

// Blocks of (lanes, heads of rows), n = rows * heads: out[i] = x[i] . vector[i % heads], rows of `columns` numbers.
__global__ void head_dots(const float *x, const float *vector, float *out, long long n, int heads, int columns) {
    const long long item = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    if (item < n)
        for (int c = threadIdx.x; c < columns; c += blockDim.x)
            sum += x[item * columns + c] * vector[item % heads * columns + c];
    sum = lane_sum(sum, blockDim.x);
    if (item < n && threadIdx.x == 0) out[item] = sum;
}

// The same mapping: what backward knows of a row's head.
__global__ void attention_gradients(const float *dout, const float *sums, const float *state,
                                    const float *target_logits, float *facts, float *dtarget_logits, long long n,
                                    int heads, int columns) {
    const long long item = (long long)blockIdx.x * blockDim.y + threadIdx.y, row = item / heads;
    const int head = (int)(item % heads), width = heads * columns;
    float upper = 0.0f, lower = 0.0f;
    if (item < n)
        for (int c = threadIdx.x; c < columns; c += blockDim.x) {
            const float d = dout[item * columns + c], *positive = sums + row * 2 * width + head * columns + c;
            upper += d * positive[0];
            lower += d * positive[width];
        }
    upper = lane_sum(upper, blockDim.x);
    lower = lane_sum(lower, blockDim.x);
    if (item >= n || threadIdx.x != 0) return;
    const float product = upper + lower, *own = state + row * 3 * heads + head;
    float *fact = facts + row * 3 * heads + head;
    fact[0] = target_logits[item];
    fact[heads] = own[0];
    fact[2 * heads] = product;
    dtarget_logits[item] = (1.0f - SLOPE) * (upper - product * own[2 * heads]);
}

// Blocks of (32, 8), grid (parts, tiles of 32 columns), as column_sums: dx += dout * vector, and
// partials[part, c] = the sum over the part's rows of dout * x.
__global__ void head_dots_backward(const float *x, const float *vector, const float *dout, float *dx, float *partials,
                                   long long n, int heads, int width) {
    __shared__ float sums[8][32];
    const int column = blockIdx.y * 32 + threadIdx.x;
    float sum = 0.0f;
    if (column < width) {
        const int head = column / (width / heads);
        const float factor = vector[column];
        const long long stride = (long long)gridDim.x * 8;
        for (long long row = (long long)blockIdx.x * 8 + threadIdx.y; row < n; row += stride) {
            const float d = dout[row * heads + head];
            dx[row * width + column] += d * factor;
            sum += d * x[row * width + column];
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        sum = 0.0f;
        for (int k = 0; k < 8; k++) sum += sums[k][threadIdx.x];
        partials[(long long)blockIdx.x * width + column] = sum;
    }
}
