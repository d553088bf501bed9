// Flat kernels: four consecutive elements a thread, one pass over memory.
#include "common.cuh"

__device__ inline long long first_element() { return ((long long)blockIdx.x * blockDim.x + threadIdx.x) * 4; }

// out = x in another storage type.
template <typename From, typename To, bool ALIGNED>
__global__ void convert(const From *x, To *out, long long n) {
    const long long first = first_element();
    float v[4];
    load<ALIGNED>(x, first, n, v);
    store<ALIGNED>(out, first, n, v);
}

// out = alpha * x + beta * y; y is not read if it is null.
template <bool ALIGNED>
__global__ void axpby(float alpha, const float *x, float beta, const float *y, float *out, long long n) {
    const long long first = first_element();
    float v[4], w[4];
    load<ALIGNED>(x, first, n, v);
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] *= alpha;
    if (y) {
        load<ALIGNED>(y, first, n, w);
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] += beta * w[i];
    }
    store<ALIGNED>(out, first, n, v);
}

// One step of Adam on flat arrays; `keep` are the betas, `take` are 1 - beta.
template <bool ALIGNED>
__global__ void adam(float *param, const float *grad, float *m, float *v, long long n, float lr, float keep1,
                     float take1, float keep2, float take2, float epsilon, float weight_decay, float correction1,
                     float correction2) {
    const long long first = first_element();
    float p[4], g[4], mean[4], square[4];
    load<ALIGNED>(param, first, n, p);
    load<ALIGNED>(grad, first, n, g);
    load<ALIGNED>(m, first, n, mean);
    load<ALIGNED>(v, first, n, square);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        g[i] += weight_decay * p[i];
        mean[i] = keep1 * mean[i] + take1 * g[i];
        square[i] = keep2 * square[i] + take2 * g[i] * g[i];
        p[i] -= lr * (mean[i] / correction1) / (sqrtf(square[i] / correction2) + epsilon);
    }
    store<ALIGNED>(param, first, n, p);
    store<ALIGNED>(m, first, n, mean);
    store<ALIGNED>(v, first, n, square);
}
