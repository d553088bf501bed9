// Small kernels that try the PTX machine: right ones, and ones with a known mistake.

template <bool BARRIER> __global__ void reverse(const int *x, int *out) {
    __shared__ int values[64];
    values[threadIdx.x] = x[threadIdx.x];
    if (BARRIER) __syncthreads();
    out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

// The second round must not write before all have read the first.
template <bool BARRIER> __global__ void reverse_twice(const int *x, int *out) {
    __shared__ int values[64];
    values[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const int first = values[blockDim.x - 1 - threadIdx.x];
    if (BARRIER) __syncthreads();
    values[threadIdx.x] = first;
    __syncthreads();
    out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

__global__ void shuffles(int *out) {
    const int lane = threadIdx.x, n = blockDim.x;
    out[lane] = __shfl_sync(0xffffffffu, lane, (lane + 5) % 32);
    out[n + lane] = __shfl_xor_sync(0xffffffffu, lane, 3);
    out[2 * n + lane] = __shfl_down_sync(0xffffffffu, lane, 4, 8);
    out[3 * n + lane] = __shfl_up_sync(0xffffffffu, lane, 1);
}

__global__ void indices(int *out) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

__global__ void unset_shared(int *out) {
    extern __shared__ int dynamic_shared[];
    out[threadIdx.x] = dynamic_shared[threadIdx.x];
}

// -- mistakes ------------------------------------------------------------------------------------
__global__ void two_blocks_write(int *out) { out[threadIdx.x] = blockIdx.x; }
__global__ void two_lanes_write(int *out) { out[threadIdx.x / 2] = threadIdx.x; }
__global__ void block_reads_what_another_writes(int *out) { out[blockIdx.x * 16] = out[16 - blockIdx.x * 16]; }
__global__ void past_the_end(int *out) { out[threadIdx.x + 1] = 1; }
__global__ void before_the_start(int *out) { out[(int)threadIdx.x - 1] = 1; }
__global__ void past_shared(int *out) {
    extern __shared__ int dynamic_shared[];
    dynamic_shared[threadIdx.x + 1] = 1;
    out[threadIdx.x] = 1;
}
__global__ void not_aligned(int *out) { *reinterpret_cast<int2 *>(out + 1 + 2 * threadIdx.x) = make_int2(1, 2); }
__global__ void leaves_early(int *out) {
    if (threadIdx.x == 7) return;
    __syncthreads();
    out[threadIdx.x] = 1;
}
__global__ void two_barriers(int *out) {
    __shared__ int values[64];
    if (threadIdx.x < 16) {
        values[threadIdx.x] = out[threadIdx.x];
        __syncthreads();
    } else {
        __syncthreads();
        values[threadIdx.x] = 2;
    }
    out[threadIdx.x] = values[threadIdx.x];
}
__global__ void half_a_shuffle(int *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, (int)threadIdx.x, 0);
}
__global__ void outside_the_mask(int *out) {
    if (threadIdx.x < 8) out[threadIdx.x] = __shfl_sync(0xffu, (int)threadIdx.x, 20);
}
