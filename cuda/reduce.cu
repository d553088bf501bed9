// Sums that are the same in every run: fixed partial sums, added in a fixed order.
#include "common.cuh"

// Blocks of (32, 8), grid (parts, tiles of 32 columns): out[part, c] = (or +=) the sum of x[row, offset + c] over the
// rows part * 8 + y + k * parts * 8. Called with many parts, then once more on their sums.
__global__ void column_sums(const float *x, long long n, int pitch, int offset, int width, float *out,
                            int accumulate) {
    __shared__ float sums[8][32];
    const int column = blockIdx.y * 32 + threadIdx.x;
    float sum = 0.0f;
    if (column < width) {
        const long long stride = (long long)gridDim.x * 8;
#pragma unroll 4
        for (long long row = (long long)blockIdx.x * 8 + threadIdx.y; row < n; row += stride)
            sum += x[row * pitch + offset + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
        sum = 0.0f;
        for (int k = 0; k < 8; k++) sum += sums[k][threadIdx.x];
        float *target = out + (long long)blockIdx.x * width + column;
        *target = accumulate ? *target + sum : sum;
    }
}

// Blocks of (32, 8): partials[block] = a share of the sum of squares, in double.
__global__ void square_sums(const float *x, long long n, double *partials) {
    const int threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    double sum = 0.0;
    for (long long i = (long long)blockIdx.x * threads + thread; i < n; i += (long long)gridDim.x * threads)
        sum += (double)x[i] * (double)x[i];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, offset);
    block_sum_of_rows(sum, partials + blockIdx.x);
}

// Blocks of (32, 8), grid (parts, tiles of 32 columns): partials[strip, c] = the sum of x * y (or of x, if y is null)
// over the rows strip + k * strips, in double; a strip is a row of threads.
__global__ void column_dots(const float *x, const float *y, long long n, int width, double *partials) {
    const int column = blockIdx.y * 32 + threadIdx.x;
    const long long strip = (long long)blockIdx.x * 8 + threadIdx.y, strips = (long long)gridDim.x * 8;
    if (column >= width) return;
    double sum = 0.0;
    for (long long row = strip; row < n; row += strips) {
        const long long at = row * width + column;
        sum += y ? (double)x[at] * (double)y[at] : (double)x[at];
    }
    partials[strip * width + column] = sum;
}

// One thread a column: out += the sum over the strips, in their order.
__global__ void column_totals(const double *partials, int strips, int width, double *out) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    double sum = 0.0;
    for (int strip = 0; strip < strips; strip++) sum += partials[(long long)strip * width + column];
    out[column] += sum;
}
