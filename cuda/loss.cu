// Losses and their gradients. Blocks of (lanes, rows); every block leaves one partial sum in double.
#include "common.cuh"

// Sum of -log softmax(logits)[label] over rows with label >= 0; dlogits = scale * (softmax - onehot), 0 without label.
// dlogits may be logits: each thread reads its columns before it writes them. class_weights: a factor of loss and
// gradient for each label, or null.
__global__ void softmax_cross_entropy(const float *logits, const int *labels, const float *class_weights, float scale,
                                      float *dlogits, double *partials, long long n, int width) {
    const int lanes = blockDim.x;
    double loss = 0.0;
    for (long long first = (long long)blockIdx.x * blockDim.y; first < n; first += (long long)gridDim.x * blockDim.y) {
        const long long row = first + threadIdx.y;           // rows past the end stay for the shuffles
        const int label = row < n ? labels[row] : -1;
        const int used_width = label >= 0 ? width : 0;
        const float weight = class_weights && label >= 0 ? class_weights[label] : 1.0f;
        const float *x = logits + row * width;
        float *dx = dlogits + row * width;
        float largest = __int_as_float(0xff800000);
        for (int c = threadIdx.x; c < used_width; c += lanes) largest = fmaxf(largest, x[c]);
        largest = lane_max(largest, lanes);
        float total = 0.0f, picked = 0.0f;
        for (int c = threadIdx.x; c < used_width; c += lanes) {
            total += expf(x[c] - largest);
            if (c == label) picked = x[c] - largest;
        }
        total = lane_sum(total, lanes);
        picked = lane_sum(picked, lanes);
        for (int c = threadIdx.x; c < used_width; c += lanes)
            dx[c] = (expf(x[c] - largest) / total - (c == label ? 1.0f : 0.0f)) * (scale * weight);
        if (label >= 0) {
            loss += (double)weight * (double)(logf(total) - picked);
        } else if (row < n) {
            for (int c = threadIdx.x; c < width; c += lanes) dx[c] = 0.0f;
        }
    }
    block_sum_of_rows(loss, partials + blockIdx.x);
}

// Sum of binary cross-entropies over the rows with row_used != 0; dlogits = scale * (sigmoid - target), 0 if unused.
__global__ void sigmoid_cross_entropy(const float *logits, const unsigned char *targets,
                                      const unsigned char *row_used, float scale, float *dlogits, double *partials,
                                      long long n, int width) {
    double loss = 0.0;
    for (long long first = (long long)blockIdx.x * blockDim.y; first < n; first += (long long)gridDim.x * blockDim.y) {
        const long long row = first + threadIdx.y;
        const int row_width = row < n ? width : 0;
        const bool used = row < n && row_used[row] != 0;
        for (int c = threadIdx.x; c < row_width; c += blockDim.x) {
            const long long at = row * width + c;
            const float x = logits[at], target = (float)targets[at];
            const float small = expf(-fabsf(x));
            if (used) loss += (double)(fmaxf(x, 0.0f) - x * target + log1pf(small));
            dlogits[at] = used ? ((x >= 0.0f ? 1.0f : small) / (1.0f + small) - target) * scale : 0.0f;
        }
    }
    for (int offset = blockDim.x / 2; offset; offset /= 2) loss += __shfl_xor_sync(FULL_WARP, loss, offset);
    block_sum_of_rows(loss, partials + blockIdx.x);
}
