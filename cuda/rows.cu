// Moving rows: gather, scatter-add, subsets of columns. Blocks of (lanes, rows); four neighbouring columns per thread
// where they are one vector (ALIGNED), else one, so that a request of a warp touches each sector once.
#include "common.cuh"

__device__ inline long long row_of_thread() { return (long long)blockIdx.x * blockDim.y + threadIdx.y; }

// out[i] = x[index[i]] in the type of out.
template <typename Out, bool ALIGNED>
__global__ void gather_rows(const float *x, const int *index, Out *out, long long n, int width) {
    const long long row = row_of_thread();
    if (row >= n) return;
    const float *source = x + (long long)index[row] * width;
    if (!ALIGNED) {
        for (int c = threadIdx.x; c < width; c += blockDim.x) out[row * width + c] = narrow<Out>(source[c]);
        return;
    }
    for (int c = threadIdx.x * 4; c < width; c += blockDim.x * 4) {
        float v[4];
        load<ALIGNED>(source, c, width, v);
        store<ALIGNED>(out + row * width, c, width, v);
    }
}

// out[index[i]] += x[i]; the entries of index are distinct, so no two threads meet.
template <typename X, bool ALIGNED>
__global__ void scatter_add_rows(const X *x, const int *index, float *out, long long n, int width) {
    const long long row = row_of_thread();
    if (row >= n) return;
    float *target = out + (long long)index[row] * width;
    if (!ALIGNED) {
        for (int c = threadIdx.x; c < width; c += blockDim.x) target[c] += widen(x[row * width + c]);
        return;
    }
    for (int c = threadIdx.x * 4; c < width; c += blockDim.x * 4) {
        float v[4], old[4];
        load<ALIGNED>(x + row * width, c, width, v);
        load<ALIGNED>(target, c, width, old);
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] += old[i];
        store<ALIGNED>(target, c, width, v);
    }
}

// out[i, k] = x[index[i], columns[k]].
__global__ void pack_columns(const float *x, const int *index, const int *columns, float *out, long long n, int width,
                             int n_chosen) {
    const long long row = row_of_thread();
    if (row >= n) return;
    const float *source = x + (long long)index[row] * width;
    for (int k = threadIdx.x; k < n_chosen; k += blockDim.x) out[row * n_chosen + k] = source[columns[k]];
}

// inverse[columns[k]] = k, -1 elsewhere; one block.
__global__ void invert_columns(const int *columns, int n_chosen, int *inverse, int width) {
    for (int c = threadIdx.x; c < width; c += blockDim.x) inverse[c] = -1;
    __syncthreads();
    for (int k = threadIdx.x; k < n_chosen; k += blockDim.x) inverse[columns[k]] = k;
}

// out[i, c] = x[i, inverse[c]] * scale, 0 where inverse[c] < 0: one pass over out.
template <bool ALIGNED>
__global__ void unpack_columns(const float *x, const int *inverse, float *out, float scale, long long n, int width,
                               int n_chosen) {
    const long long row = row_of_thread();
    if (row >= n) return;
    if (!ALIGNED) {
        for (int c = threadIdx.x; c < width; c += blockDim.x) {
            const int k = inverse[c];
            out[row * width + c] = k >= 0 ? x[row * n_chosen + k] * scale : 0.0f;
        }
        return;
    }
    for (int c = threadIdx.x * 4; c < width; c += blockDim.x * 4) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int k = c + i < width ? inverse[c + i] : -1;
            v[i] = k >= 0 ? x[row * n_chosen + k] * scale : 0.0f;
        }
        store<ALIGNED>(out + row * width, c, width, v);
    }
}

// out = x * scale + y * weight + shift, column by column; y and weight may be null.
__global__ void column_affine(const float *x, const float *scale, const float *y, const float *weight,
                              const float *shift, float *out, long long n, int width) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    for (int column = threadIdx.x; column < width; column += blockDim.x) {
        const long long at = row * width + column;
        float v = x[at] * scale[column];
        if (y) v += y[at] * weight[column];
        out[at] = v + shift[column];
    }
}

// Rows of `width` elements between two arrays whose rows are a pitch apart.
template <typename T, bool ALIGNED>
__global__ void copy_columns(const T *source, T *target, long long n, int width, long long source_pitch,
                             long long target_pitch) {
    const long long row = row_of_thread();
    if (row >= n) return;
    source += row * source_pitch, target += row * target_pitch;
    if (!ALIGNED) {
        for (int c = threadIdx.x; c < width; c += blockDim.x) target[c] = source[c];
        return;
    }
    for (int c = threadIdx.x * 4; c < width; c += blockDim.x * 4)
        *reinterpret_cast<Pack<T, 4> *>(target + c) = *reinterpret_cast<const Pack<T, 4> *>(source + c);
}
