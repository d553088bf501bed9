// Small kernels that try the emulation itself: right ones, and ones with a known mistake.

template <bool BARRIER> __global__ void reverse(const int *x, int *out) {
    extern __shared__ float dynamic_shared[];
    dynamic_shared[threadIdx.x] = (float)x[threadIdx.x];
    if (BARRIER) __syncthreads();
    out[threadIdx.x] = (int)dynamic_shared[blockDim.x - 1 - threadIdx.x];
}

template <bool BARRIER> __global__ void rotate_in_warp(const int *x, int *out) {
    __shared__ int values[64];
    values[threadIdx.x] = x[threadIdx.x];
    if (BARRIER) __syncwarp();
    out[threadIdx.x] = values[threadIdx.x / 32 * 32 + (threadIdx.x + 1) % 32];
}

__global__ void shuffles(int *out) {
    const int lane = threadIdx.x, n = blockDim.x;
    out[lane] = __shfl_sync(0xffffffffu, lane, (lane + 5) % 32);
    out[n + lane] = __shfl_xor_sync(0xffffffffu, lane, 3);
    out[2 * n + lane] = __shfl_down_sync(0xffffffffu, lane, 4, 8);
    out[3 * n + lane] = __shfl_up_sync(0xffffffffu, lane, 1);
    out[4 * n + lane] = (int)__shfl_sync(0xffffffffu, (double)lane * 0.5, 3, 4);
}

__global__ void votes(int *out) {
    const int lane = threadIdx.x, n = blockDim.x;
    out[lane] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
    out[n + lane] = __any_sync(0xffffffffu, lane == 9);
    out[2 * n + lane] = __all_sync(0xffffffffu, lane < 31);
    if (lane < 8) out[3 * n + lane] = (int)__ballot_sync(0xffu, lane > 5);
}

__global__ void atomics(int *out) {
    atomicAdd(&out[0], 1);
    atomicMax(&out[1], (int)(blockIdx.x * blockDim.x + threadIdx.x));
    atomicMin(&out[2], -(int)threadIdx.x);
    atomicCAS(&out[3], 0, (int)blockIdx.x + 1);
}

__global__ void indices(int *out) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

__global__ void unset_shared(float *out) {
    extern __shared__ float dynamic_shared[];
    out[threadIdx.x] = dynamic_shared[threadIdx.x];
}

__global__ void leaves_early(int *out) {
    if (threadIdx.x == 7) return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void two_barriers(int *out) {
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1;
}

__global__ void half_a_shuffle(int *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
}

__global__ void outside_the_mask(int *out) {
    if (threadIdx.x < 8) out[threadIdx.x] = __shfl_sync(0xffu, 1, 20);
}

__global__ void halves(const unsigned short *bits, float *wide, const float *x, unsigned short *narrowed, int n_wide,
                       int n_narrow) {
    for (int i = threadIdx.x; i < n_wide; i += blockDim.x) wide[i] = cuda_host::half_to_float(bits[i]);
    for (int i = threadIdx.x; i < n_narrow; i += blockDim.x) narrowed[i] = cuda_host::float_to_half(x[i]);
}

__global__ void all_types(const float *f, const int4 *v, double d, int i, unsigned u, long long l, float *out) {
    out[0] = f[0] + (float)(v[0].x + v[0].w) + (float)d + (float)i + (float)u + (float)l;
}
