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

// Numbers that are used once in a while: they leave the caches first, and what is gathered stays.
template <typename T> __device__ inline T load_once(const T *p) {
#ifdef CUDA_HOST
    return *p;
#else
    return __ldcs(p);
#endif
}

__device__ inline void store_once(float *p, const float (&v)[1]) {
#ifdef CUDA_HOST
    *p = v[0];
#else
    __stcs(p, v[0]);
#endif
}

__device__ inline void store_once(float *p, const float (&v)[4]) {
#ifdef CUDA_HOST
    store_pack(p, v);
#else
    __stcs(reinterpret_cast<float4 *>(p), make_float4(v[0], v[1], v[2], v[3]));
#endif
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

// The key of a draw comes with the launch, or from memory where the launch is recorded and done again in every epoch.
__device__ inline void use_key(const unsigned *key, unsigned &k0, unsigned &k1) {
    if (key) k0 = key[0], k1 = key[1];
}

// The 16 random bits of columns 8 * block ... 8 * block + 7 of a node.
__device__ inline void random8(unsigned k0, unsigned k1, long long id, int block, unsigned (&r)[8]) {
    unsigned w[4];
    philox((unsigned)block, (unsigned)id, (unsigned)((unsigned long long)id >> 32), k0, k1, w);
#pragma unroll
    for (int i = 0; i < 8; i++) r[i] = (w[i / 2] >> (16 * (i % 2))) & 0xffffu;
}

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

// -- eight columns per thread -----------------------------------------------------------------------------------------
// Of a tile of 8 * lanes columns that starts at `tile`, a multiple of that. ALIGNED: four neighbours in each half of the
// tile, so that the vectors of neighbouring lanes are neighbours and a request of a warp uses whole sectors. Otherwise
// eight neighbours, one by one.
template <bool ALIGNED> __device__ inline int own_column(int tile, int lanes, int i) {
    return ALIGNED ? tile + (i / 4) * 4 * lanes + (int)threadIdx.x * 4 + i % 4 : tile + (int)threadIdx.x * 8 + i;
}

// The same the other way: which number of which lane a column is, as the place i * stride + lane of an array; `stride`
// counts the lanes of all tiles.
template <bool ALIGNED> __device__ inline int place_of_column(int column, int lanes, int stride) {
    if (!ALIGNED) return column % 8 * stride + column / 8;
    const int tile = column / (8 * lanes), within = column - tile * 8 * lanes, half = within / (4 * lanes);
    return (half * 4 + within % 4) * stride + tile * lanes + (within - half * 4 * lanes) / 4;
}

// v = p at the thread's columns, 0 from `end` on.
template <bool ALIGNED> __device__ inline void load_own(const float *p, int tile, int lanes, int end, float (&v)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k += 4) {
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (ALIGNED) {
            const int c = own_column<true>(tile, lanes, k);
            if (c < end) load_pack(p + c, part);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int c = own_column<false>(tile, lanes, k + i);
                if (c < end) part[i] = p[c];
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) v[k + i] = part[i];
    }
}

template <bool ALIGNED> __device__ inline void store_own(float *p, int tile, int lanes, int end, const float (&v)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k += 4) {
        if (ALIGNED) {
            const int c = own_column<true>(tile, lanes, k);
            const float part[4] = {v[k], v[k + 1], v[k + 2], v[k + 3]};
            if (c < end) store_pack(p + c, part);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int c = own_column<false>(tile, lanes, k + i);
                if (c < end) p[c] = v[k + i];
            }
        }
    }
}

// The random bits of a thread's columns, where the row's first column is `first_column` of the draw. All lanes of the
// warp must call. A block of eight columns belongs to two neighbouring lanes: one draws it for both, and the other one
// that of the second half.
template <bool ALIGNED>
__device__ inline void random_own(unsigned k0, unsigned k1, long long id, int first_column, int tile, int lanes,
                                  unsigned (&r)[8]) {
    if (!ALIGNED || lanes == 1) {
        random8_from(k0, k1, id, first_column + own_column<false>(tile, lanes, 0), r);
    } else if (first_column % 8 == 0) {
        const bool odd = threadIdx.x % 2 != 0;
        const int column = first_column + tile + (int)(threadIdx.x / 2) * 8 + (odd ? 4 * lanes : 0);
        unsigned w[4];
        philox((unsigned)(column / 8), (unsigned)id, (unsigned)((unsigned long long)id >> 32), k0, k1, w);
        const unsigned low = __shfl_xor_sync(FULL_WARP, odd ? w[0] : w[2], 1);
        const unsigned high = __shfl_xor_sync(FULL_WARP, odd ? w[1] : w[3], 1);
        const unsigned mine[4] = {odd ? low : w[0], odd ? high : w[1], odd ? w[2] : low, odd ? w[3] : high};
#pragma unroll
        for (int i = 0; i < 8; i++) r[i] = (mine[i / 2] >> (16 * (i % 2))) & 0xffffu;
    } else {
        unsigned part[8];
#pragma unroll
        for (int k = 0; k < 8; k += 4) {
            random8_from(k0, k1, id, first_column + own_column<true>(tile, lanes, k), part);
#pragma unroll
            for (int i = 0; i < 4; i++) r[k + i] = part[i];
        }
    }
}
