// What all kernels share: 16-bit storage types, vector loads, Philox, reductions over the lanes of a row.
//
// Two mappings recur. "Row" kernels launch blocks of (lanes, rows): `lanes` is a power of two up to 32, so the lanes
// of one row sit in one warp and meet by shuffles. "Flat" kernels give each thread four consecutive elements.
#pragma once

constexpr unsigned FULL_WARP = 0xffffffffu;

// `kind` is NumPy's letter for the array type that carries the bits.
struct half16 { unsigned short bits; static constexpr char kind = 'f'; };    // IEEE half
struct bf16 { unsigned short bits; static constexpr char kind = 'u'; };      // upper half of a float

// -- conversions ------------------------------------------------------------------------------------------------------
__device__ inline float widen(float x) { return x; }

__device__ inline float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

// PTX instead of cuda_fp16.h: NVRTC then needs no toolkit headers on the cluster.
__device__ inline float widen(half16 x) {
#ifdef CUDA_HOST
    return cuda_host::half_to_float(x.bits);
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#endif
}

template <typename T> __device__ T narrow(float x);

template <> __device__ inline float narrow<float>(float x) { return x; }

template <> __device__ inline bf16 narrow<bf16>(float x) {
    unsigned bits = __float_as_uint(x);
    unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return {(unsigned short)(x == x ? rounded : 0x7fc0u)};
}

template <> __device__ inline half16 narrow<half16>(float x) {
#ifdef CUDA_HOST
    return {cuda_host::float_to_half(x)};
#else
    half16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#endif
}

// -- vector loads and stores ------------------------------------------------------------------------------------------
template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T item[N]; };

// v = p[0:N] in one load; p is aligned to the size of the pack.
template <int N, typename T> __device__ inline void load_pack(const T *p, float (&v)[N]) {
    const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N> *>(p);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = widen(pack.item[i]);
}

template <int N, typename T> __device__ inline void store_pack(T *p, const float (&v)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++) pack.item[i] = narrow<T>(v[i]);
    *reinterpret_cast<Pack<T, N> *>(p) = pack;
}

// v = p[first:first + N], 0 from `end` on; ALIGNED promises that groups of four starting at multiples of four are.
template <bool ALIGNED, int N, typename T>
__device__ inline void load(const T *p, long long first, long long end, float (&v)[N]) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (ALIGNED && first + k + 4 <= end) {
            load_pack(p + first + k, part);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (first + k + i < end) part[i] = widen(p[first + k + i]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) v[k + i] = part[i];
    }
}

template <bool ALIGNED, int N, typename T>
__device__ inline void store(T *p, long long first, long long end, const float (&v)[N]) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
        if (ALIGNED && first + k + 4 <= end) {
            const float part[4] = {v[k], v[k + 1], v[k + 2], v[k + 3]};
            store_pack(p + first + k, part);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (first + k + i < end) p[first + k + i] = narrow<T>(v[k + i]);
        }
    }
}

// -- random bits ------------------------------------------------------------------------------------------------------
__device__ inline void philox(unsigned c0, unsigned c1, unsigned c2, unsigned k0, unsigned k1, unsigned (&w)[4]) {
    unsigned c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
}

// The 16 random bits of columns 8 * block ... 8 * block + 7 of a node.
__device__ inline void random8(unsigned k0, unsigned k1, long long id, int block, unsigned (&r)[8]) {
    unsigned w[4];
    philox((unsigned)block, (unsigned)id, (unsigned)((unsigned long long)id >> 32), k0, k1, w);
#pragma unroll
    for (int i = 0; i < 8; i++) r[i] = (w[i / 2] >> (16 * (i % 2))) & 0xffffu;
}

// -- sums over the lanes of a row --------------------------------------------------------------------------------------
// All lanes get the result; `lanes` is a power of two and every lane of the warp must call.
__device__ inline float lane_sum(float v, int lanes) {
    for (int offset = lanes / 2; offset; offset /= 2) v += __shfl_xor_sync(FULL_WARP, v, offset);
    return v;
}

__device__ inline float lane_max(float v, int lanes) {
    for (int offset = lanes / 2; offset; offset /= 2) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, offset));
    return v;
}

__device__ inline float lane_min(float v, int lanes) {
    for (int offset = lanes / 2; offset; offset /= 2) v = fminf(v, __shfl_xor_sync(FULL_WARP, v, offset));
    return v;
}

// The sum over a block of one number per row (held by lane 0 of the row), in the order of the rows; by thread (0, 0).
__device__ inline void block_sum_of_rows(double v, double *out) {
    __shared__ double row_sums[32 * 8];
    if (threadIdx.x == 0) row_sums[threadIdx.y] = v;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        double sum = 0.0;
        for (int k = 0; k < (int)blockDim.y; k++) sum += row_sums[k];
        *out = sum;
    }
}
