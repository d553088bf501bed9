// Rows in 1, 2, 4 or 8 bits per element with an offset and a scale per row; layout and arithmetic: backend/base.py.
// Blocks of (lanes, rows), eight columns per thread, which common.cuh says; a thread also makes or takes the BITS bytes
// of one block of eight neighbouring columns. No operation may be fused: the bytes are those of the CPU.
#include "common.cuh"

// float -> the nearest bfloat16 that is not below (upward) or not above it.
__device__ inline float bf16_towards(float x, bool upward) {
    const unsigned bits = __float_as_uint(x) & 0xffff0000u;
    const float truncated = __uint_as_float(bits);
    const bool away = truncated != x && (upward ? x > 0.0f : x < 0.0f);
    return away ? __uint_as_float(bits + 0x10000u) : truncated;
}

// For random rounding: the offset and the scale of a row as they are stored.
__device__ inline void quantiser_range(float low, float high, int levels, bool wide, float &zero, float &step) {
    zero = wide ? low : bf16_towards(low, false);
    step = (float)(((double)high - (double)zero) / (double)levels);
    if ((double)zero + (double)levels * (double)step < (double)high)
        step = nextafterf(step, __int_as_float(0x7f800000));
    if (!wide) step = bf16_towards(step, true);
}

// For rounding to the nearest: the range is cut into cells, an element becomes the centre of its cell.
__device__ inline void quantiser_cells(float low, float high, int levels, bool wide, float &zero, float &step) {
    step = (float)(((double)high - (double)low) / (double)(levels + 1));
    if (!wide) step = widen(narrow<bf16>(step));
    zero = (float)((double)low + (double)step * 0.5);
    if (!wide) zero = widen(narrow<bf16>(zero));
}

// The lowest `n` bytes of `word` to p, which may have any alignment.
__device__ inline void store_bytes(unsigned char *p, unsigned long long word, int n) {
    if (n == 8 && (size_t)p % 8 == 0) {
        *reinterpret_cast<unsigned long long *>(p) = word;
    } else if (n == 8 && (size_t)p % 4 == 0) {
        reinterpret_cast<unsigned *>(p)[0] = (unsigned)word;
        reinterpret_cast<unsigned *>(p)[1] = (unsigned)(word >> 32);
    } else if (n == 4 && (size_t)p % 4 == 0) {
        *reinterpret_cast<unsigned *>(p) = (unsigned)word;
    } else if (n == 2 && (size_t)p % 2 == 0) {
        *reinterpret_cast<unsigned short *>(p) = (unsigned short)word;
    } else {
        for (int i = 0; i < n; i++) p[i] = (unsigned char)(word >> (8 * i));
    }
}

__device__ inline unsigned long long load_bytes(const unsigned char *p, int n) {
    if (n == 8 && (size_t)p % 8 == 0) return *reinterpret_cast<const unsigned long long *>(p);
    if (n == 8 && (size_t)p % 4 == 0) {
        const unsigned *words = reinterpret_cast<const unsigned *>(p);
        return words[0] | (unsigned long long)words[1] << 32;
    }
    if (n == 4 && (size_t)p % 4 == 0) return *reinterpret_cast<const unsigned *>(p);
    if (n == 2 && (size_t)p % 2 == 0) return *reinterpret_cast<const unsigned short *>(p);
    unsigned long long word = 0;
    for (int i = 0; i < n; i++) word |= (unsigned long long)p[i] << (8 * i);
    return word;
}

// The block of eight columns whose bytes this thread stores or loads: its own, or of the two that belong to a pair of
// lanes the first (even lane) or the second.
template <bool ALIGNED> __device__ inline int own_block(int tile, int lanes) {
    if (!ALIGNED || lanes == 1) return tile / 8 + (int)threadIdx.x;
    return tile / 8 + (int)(threadIdx.x / 2) + (threadIdx.x % 2 ? lanes / 2 : 0);
}

// codes: BITS bits for each of the thread's columns. Returns those of its block. All lanes of the warp must call.
template <int BITS, bool ALIGNED>
__device__ inline unsigned long long block_of_codes(const unsigned (&codes)[8], int lanes) {
    unsigned low = 0, high = 0;                           // of the four columns of each half
#pragma unroll
    for (int i = 0; i < 4; i++) low |= codes[i] << (i * BITS), high |= codes[i + 4] << (i * BITS);
    if (ALIGNED && lanes > 1) {
        const bool odd = threadIdx.x % 2 != 0;
        const unsigned other = __shfl_xor_sync(FULL_WARP, odd ? low : high, 1);
        if (odd) low = other;
        else high = other;
    }
    return low | (unsigned long long)high << (4 * BITS);
}

// The other way.
template <int BITS, bool ALIGNED>
__device__ inline void codes_of_block(unsigned long long word, int lanes, unsigned (&codes)[8]) {
    const unsigned long long half = (1ull << (4 * BITS)) - 1ull;
    unsigned low = (unsigned)(word & half), high = (unsigned)(word >> (4 * BITS) & half);
    if (ALIGNED && lanes > 1) {
        const bool odd = threadIdx.x % 2 != 0;
        const unsigned other = __shfl_xor_sync(FULL_WARP, odd ? low : high, 1);
        if (odd) low = other;
        else high = other;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        codes[i] = low >> (i * BITS) & ((1u << BITS) - 1u);
        codes[i + 4] = high >> (i * BITS) & ((1u << BITS) - 1u);
    }
}

// Without ids: rounding to the nearest, nothing is drawn.
template <int BITS, bool ALIGNED>
__global__ void quantise(const float *x, const int *index, const long long *ids, long long n, int width, unsigned k0,
                         unsigned k1, const unsigned *key, int wide, unsigned char *out) {
    const int lanes = blockDim.x, levels = (1 << BITS) - 1;
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < n;                            // rows past the end stay for the shuffles
    const int end = live ? width : 0;
    const float *source = x + (live ? (index ? (long long)index[row] : row) : 0) * width;
    const float infinity = __int_as_float(0x7f800000);
    float low = infinity, high = -infinity;
    for (int tile = 0; tile < end; tile += lanes * 8) {
        float v[8];
        load_own<ALIGNED>(source, tile, lanes, end, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (own_column<ALIGNED>(tile, lanes, i) >= width) continue;
            const bool finite = fabsf(v[i]) < infinity;   // false for NaN, which fminf would pass over
            low = finite ? fminf(low, v[i]) : -infinity;
            high = finite ? fmaxf(high, v[i]) : infinity;
        }
    }
    low = __fadd_rn(lane_min(low, lanes), 0.0f);          // -0 becomes 0
    high = __fadd_rn(lane_max(high, lanes), 0.0f);
    use_key(key, k0, k1);

    float zero = 0.0f, step = 0.0f;
    if (fabsf(low) < infinity && fabsf(high) < infinity) {
        if (ids) quantiser_range(low, high, levels, wide, zero, step);
        else quantiser_cells(low, high, levels, wide, zero, step);
    } else if (width) {
        zero = step = __int_as_float(0x7fc00000);
    }
    const int row_bytes = (width * BITS + 7) / 8, parameter_bytes = wide ? 8 : 4;
    if (live && threadIdx.x == 0) {
        const unsigned z = __float_as_uint(zero), s = __float_as_uint(step);
        const unsigned long long pair = wide ? z | (unsigned long long)s << 32 : z >> 16 | (s & 0xffff0000u);
        store_bytes(out + row * parameter_bytes, pair, parameter_bytes);
    }
    unsigned char *bytes = out + n * parameter_bytes + row * row_bytes;
    const long long id = ids && live ? ids[row] : 0;
    for (int tile = 0; tile < width; tile += lanes * 8) {
        float v[8];
        unsigned codes[8], r[8] = {32768u, 32768u, 32768u, 32768u, 32768u, 32768u, 32768u, 32768u};
        load_own<ALIGNED>(source, tile, lanes, end, v);
        if (ids) random_own<ALIGNED>(k0, k1, id, 0, tile, lanes, r);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float scaled = __fdiv_rn(__fsub_rn(v[i], zero), step);
            const float q = floorf(__fadd_rn(scaled, (float)r[i] * (1.0f / 65536.0f)));
            const bool coded = step > 0.0f && own_column<ALIGNED>(tile, lanes, i) < width;
            codes[i] = coded ? (unsigned)fminf(fmaxf(q, 0.0f), (float)levels) : 0u;
        }
        const unsigned long long word = block_of_codes<BITS, ALIGNED>(codes, lanes);
        const int first = own_block<ALIGNED>(tile, lanes) * BITS;
        if (live && first < row_bytes) store_bytes(bytes + first, word, min(BITS, row_bytes - first));
    }
}

template <int BITS, bool ALIGNED>
__global__ void dequantise(const unsigned char *data, int wide, float *out, long long n, int width) {
    const int lanes = blockDim.x;
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < n;                            // rows past the end stay for the shuffles
    const int row_bytes = (width * BITS + 7) / 8, parameter_bytes = wide ? 8 : 4;
    const unsigned long long pair = live ? load_bytes(data + row * parameter_bytes, parameter_bytes) : 0;
    const float zero = __uint_as_float(wide ? (unsigned)pair : (unsigned)pair << 16);
    const float step = __uint_as_float(wide ? (unsigned)(pair >> 32) : (unsigned)pair & 0xffff0000u);
    const unsigned char *bytes = data + n * parameter_bytes + row * row_bytes;
    for (int tile = 0; tile < width; tile += lanes * 8) {
        const int first = own_block<ALIGNED>(tile, lanes) * BITS;
        const bool mine = live && first < row_bytes;
        const unsigned long long word = mine ? load_bytes(bytes + first, min(BITS, row_bytes - first)) : 0;
        unsigned codes[8];
        codes_of_block<BITS, ALIGNED>(word, lanes, codes);
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = __fadd_rn(__fmul_rn((float)codes[i], step), zero);
        store_own<ALIGNED>(out + row * width, tile, lanes, live ? width : 0, v);
    }
}
