// Runs CUDA source on a CPU: a grid block by block, the threads of a block as fibers on their own stacks.
//
// A fiber runs until it meets a barrier, a shuffle or a vote, so those are real meetings: a kernel that forgets one
// computes with what is there at that moment, and the order in which threads and blocks run (ascending, descending,
// shuffled) decides what that is. Threads that wait for one another for ever, or meet at different lines, are an error
// that names the lines. Only what the kernels of this project use is here; it is not a CUDA implementation.
#pragma once
#define CUDA_HOST 1

#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "fibers.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ thread_local        // static within a function, and external for the dynamic array

// -- types -------------------------------------------------------------------------------------------------------------
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };

namespace cuda_host {

// -- the table of kernels that a compiled module offers ---------------------------------------------------------------------
// A type as NumPy writes it: "f4", "i8"; a vector type as "i4x4"; a pointer with a leading "*".
template <typename T> std::string type_code() {
    if constexpr (std::is_pointer_v<T>) return "*" + type_code<std::remove_cv_t<std::remove_pointer_t<T>>>();
    else if constexpr (std::is_same_v<T, int4>) return "i4x4";
    else if constexpr (std::is_same_v<T, float4>) return "f4x4";
    else if constexpr (std::is_class_v<T>) return T::kind + std::to_string(sizeof(T));
    else if constexpr (std::is_floating_point_v<T>) return "f" + std::to_string(sizeof(T));
    else return (std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T));
}

struct Kernel {
    void *function;
    void (*call)(void *function, void **args);
    std::string signature;
};

template <typename... P, size_t... I>
void call_with(void (*function)(P...), void **args, std::index_sequence<I...>) {
    function(*static_cast<std::remove_const_t<P> *>(args[I])...);
}

template <typename... P> Kernel describe(void (*function)(P...)) {
    std::string signature;
    ((signature += (signature.empty() ? "" : " ") + type_code<std::remove_cv_t<P>>()), ...);
    return {reinterpret_cast<void *>(function),
            [](void *f, void **args) {
                call_with(reinterpret_cast<void (*)(P...)>(f), args, std::index_sequence_for<P...>());
            },
            signature};
}

inline const char *launch(const Kernel &kernel, const unsigned *grid, const unsigned *block, unsigned shared_bytes,
                          void **args, int order, unsigned long long seed) {
    grid_size = {grid[0], grid[1], grid[2]};
    block_size = {block[0], block[1], block[2]};
    machine.function = kernel.function, machine.call = kernel.call, machine.args = args;
    machine.random = seed;
    run_grid((Order)order, shared_bytes);
    return machine.error.empty() ? nullptr : machine.error.c_str();
}

inline float half_to_float(unsigned short bits) {
    const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
    float magnitude = exponent ? std::ldexp((float)(fraction | 1024u), (int)exponent - 25)
                               : std::ldexp((float)fraction, -24);
    if (exponent == 31) magnitude = fraction ? NAN : INFINITY;
    unsigned word;
    memcpy(&word, &magnitude, 4);
    word |= sign;
    memcpy(&magnitude, &word, 4);
    return magnitude;
}

// To nearest, ties to even, as cvt.rn.f16.f32 does.
inline unsigned short float_to_half(float x) {
    unsigned word;
    memcpy(&word, &x, 4);
    const unsigned short sign = word >> 16 & 0x8000u;
    const float magnitude = std::fabs(x);
    if (x != x) return 0x7fff;
    if (magnitude >= 65520.0f) return sign | 0x7c00u;
    if (magnitude < 6.103515625e-05f) return sign | (unsigned short)std::nearbyint(std::ldexp(magnitude, 24));
    int exponent;
    const float fraction = std::frexp(magnitude, &exponent);          // in [0.5, 1)
    const int rounded = (int)std::nearbyint(std::ldexp(fraction, 11));      // 1024 ... 2048, a carry is right
    return sign | (unsigned short)(((exponent + 14) << 10) + (rounded - 1024));
}

}  // namespace cuda_host

// -- CUDA's names ----------------------------------------------------------------------------------------------------------
#define threadIdx cuda_host::thread_index
#define blockIdx cuda_host::block_index
#define blockDim cuda_host::block_size
#define gridDim cuda_host::grid_size
#define __syncthreads() cuda_host::block_barrier(__LINE__)

inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    cuda_host::meet(mask, 0, cuda_host::SYNC, line);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::lane() / width * width + source % width, width, line);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::lane() ^ bits, width, line);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::lane() + (int)delta, width, line);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::lane() - (int)delta, width, line);
}

inline unsigned __ballot_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return cuda_host::vote(mask, value != 0, line);
}
inline int __any_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return cuda_host::vote(mask, value != 0, line) != 0;
}
inline int __all_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return cuda_host::vote(mask, value != 0, line) == mask;
}

// Only one fiber runs at a time, so plain operations are atomic.
template <typename T> T atomicAdd(T *address, T value) { T old = *address; *address = old + value; return old; }
template <typename T> T atomicMax(T *address, T value) { T old = *address; *address = old > value ? old : value; return old; }
template <typename T> T atomicMin(T *address, T value) { T old = *address; *address = old < value ? old : value; return old; }
template <typename T> T atomicCAS(T *address, T expected, T value) {
    T old = *address;
    if (old == expected) *address = value;
    return old;
}

template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }

// Compiled with -ffp-contract=off, each of these is one rounding.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }

inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
inline float __int_as_float(int bits) { return __uint_as_float((unsigned)bits); }
