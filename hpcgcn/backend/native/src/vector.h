/* Vectors of the level that this file is compiled for: LANES floats, loads and stores of any alignment, tails. */
#ifndef HPCGCN_VECTOR_H
#define HPCGCN_VECTOR_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))
#define VECTOR(type, size) __attribute__((vector_size(LANES * (size)))) type

typedef VECTOR(float, 4) vfloat;
typedef VECTOR(int32_t, 4) vint;
typedef VECTOR(uint32_t, 4) vuint;
typedef VECTOR(uint64_t, 4) vlong;              /* LANES / 2 of them */
typedef VECTOR(uint16_t, 2) vhalf;
typedef VECTOR(uint8_t, 1) vbyte;
typedef vfloat vfloat_any __attribute__((aligned(4), may_alias));
typedef vhalf vhalf_any __attribute__((aligned(2), may_alias));
typedef vbyte vbyte_any __attribute__((aligned(1), may_alias));
typedef vlong vlong_any __attribute__((aligned(1), may_alias));

INLINE vfloat splat(float value) { return value - (vfloat){0}; }
INLINE vfloat load(const float *from) { return *(const vfloat_any *)from; }
INLINE void store(float *to, vfloat value) { *(vfloat_any *)to = value; }
INLINE vhalf load_half(const uint16_t *from) { return *(const vhalf_any *)from; }
INLINE void store_half(uint16_t *to, vhalf value) { *(vhalf_any *)to = value; }
INLINE vfloat choose(vint condition, vfloat yes, vfloat no)
{
    return (vfloat)((condition & (vint)yes) | (~condition & (vint)no));
}
INLINE vuint choose_bits(vint condition, vuint yes, vuint no)
{
    return ((vuint)condition & yes) | (~(vuint)condition & no);
}

INLINE vfloat keep_masked(vfloat value, vfloat mask) { return (vfloat)((vint)value & (mask != 0.0f)); }

/* The first n lanes, 0 < n < LANES; the others are 0 and memory past them is not touched. */
#if defined(__AVX512F__)
INLINE vfloat load_first(const float *from, int n)
{
    return (vfloat)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
}
INLINE void store_first(float *to, vfloat value, int n)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)value);
}
INLINE vhalf load_half_first(const uint16_t *from, int n)
{
    return (vhalf)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), from);
}
INLINE vfloat multiply_add(vfloat a, vfloat b, vfloat c)
{
    return (vfloat)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
INLINE vfloat widen_fp16(vhalf bits) { return (vfloat)_mm512_cvtph_ps((__m256i)bits); }
INLINE vhalf narrow_fp16(vfloat value)
{
    return (vhalf)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vuint extend_half(vhalf bits) { return (vuint)_mm512_cvtepu16_epi32((__m256i)bits); }
INLINE vhalf shorten(vuint word) { return (vhalf)_mm512_cvtepi32_epi16((__m512i)word); }
INLINE vlong multiply_low(vlong a, vlong b) { return (vlong)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
INLINE vlong interleave_even(vlong a, vlong b) { return (vlong)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b); }
INLINE vlong interleave_odd(vlong a, vlong b) { return (vlong)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b); }

#elif defined(__AVX2__)
INLINE __m256i first_lanes(int n)
{
    static const int32_t window[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(window + 8 - n));
}
INLINE vfloat load_first(const float *from, int n) { return (vfloat)_mm256_maskload_ps(from, first_lanes(n)); }
INLINE void store_first(float *to, vfloat value, int n) { _mm256_maskstore_ps(to, first_lanes(n), (__m256)value); }
INLINE vfloat multiply_add(vfloat a, vfloat b, vfloat c)
{
    return (vfloat)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
INLINE vfloat widen_fp16(vhalf bits) { return (vfloat)_mm256_cvtph_ps((__m128i)bits); }
INLINE vhalf narrow_fp16(vfloat value)
{
    return (vhalf)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vuint extend_half(vhalf bits) { return (vuint)_mm256_cvtepu16_epi32((__m128i)bits); }
INLINE vhalf shorten(vuint word) { return __builtin_convertvector(word, vhalf); }
INLINE vlong multiply_low(vlong a, vlong b) { return (vlong)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
INLINE vlong interleave_even(vlong a, vlong b) { return (vlong)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b); }
INLINE vlong interleave_odd(vlong a, vlong b) { return (vlong)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b); }
/* Pairs of halves have a masked load, and the last half is put in its place: a memcpy of n halves took five times as long. */
INLINE vhalf load_half_first(const uint16_t *from, int n)
{
    const vhalf lane = {0, 1, 2, 3, 4, 5, 6, 7}, last = (vhalf){0} + from[n - 1];
    const __m128i pairs = _mm_maskload_epi32((const int *)from, _mm256_castsi256_si128(first_lanes(n / 2)));
    return (vhalf)pairs | (last & (vhalf)(lane == (uint16_t)(n - 1)));
}

#else
INLINE vhalf load_half_first(const uint16_t *from, int n)
{
    vhalf value = {0};
    memcpy(&value, from, (size_t)n * 2);
    return value;
}
INLINE vfloat load_first(const float *from, int n)
{
    vfloat value = {from[0]};
    if (n > 1)
        value[1] = from[1];
    if (n > 2)
        value[2] = from[2];
    return value;
}
INLINE void store_first(float *to, vfloat value, int n)
{
    to[0] = value[0];
    if (n > 1)
        to[1] = value[1];
    if (n > 2)
        to[2] = value[2];
}
INLINE vfloat multiply_add(vfloat a, vfloat b, vfloat c) { return a * b + c; }
INLINE vuint extend_half(vhalf bits) { return __builtin_convertvector(bits, vuint); }
INLINE vhalf shorten(vuint word) { return __builtin_convertvector(word, vhalf); }
#if defined(__SSE2__)
INLINE vlong multiply_low(vlong a, vlong b) { return (vlong)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
INLINE vlong multiply_low(vlong a, vlong b) { return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu); }
#endif
INLINE vlong interleave_even(vlong a, vlong b) { return (vlong){a[0], b[0]}; }
INLINE vlong interleave_odd(vlong a, vlong b) { return (vlong){a[1], b[1]}; }

/* IEEE halves by integer arithmetic: scaling by a power of two re-biases the exponent, subnormals included. */
INLINE vfloat widen_fp16(vhalf bits)
{
    vuint word = extend_half(bits), magnitude = word & 0x7FFF;
    vuint finite = (vuint)((vfloat)(magnitude << 13) * 0x1p112f);
    vuint infinite = (magnitude << 13) | 0x7F800000;
    return (vfloat)(choose_bits(magnitude >= 0x7C00, infinite, finite) | ((word & 0x8000) << 16));
}
INLINE vhalf narrow_fp16(vfloat value)
{
    vuint word = (vuint)value, magnitude = word & 0x7FFFFFFF;
    vuint normal = (magnitude + 0xFFF + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
    vuint subnormal = (vuint)((vfloat)magnitude + 0.5f) - 0x3F000000;       /* the addition rounds at 2^-24 */
    vuint half = choose_bits(magnitude < 0x38800000, subnormal, normal);
    half = choose_bits(magnitude >= 0x47800000, (vuint){0} + 0x7C00, half);
    half = choose_bits(magnitude > 0x7F800000, (vuint){0} + 0x7E00, half);
    return shorten(half | ((word >> 16) & 0x8000));
}
#endif

/* bfloat16: the upper half of a float, rounded to nearest, ties to even; NaN stays NaN. */
INLINE vfloat widen_bf16(vhalf bits) { return (vfloat)(extend_half(bits) << 16); }
INLINE vhalf narrow_bf16(vfloat value)
{
    vuint word = (vuint)value;
    vuint rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
    return shorten(choose_bits(value != value, (vuint){0} + 0x7FC0, rounded));
}

#endif
