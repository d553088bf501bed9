/* Rows in any storage type: fp32, IEEE halves or bfloat16. `kind` is a constant wherever speed matters. */
#ifndef HPCGCN_STORAGE_H
#define HPCGCN_STORAGE_H

#include "vector.h"

enum storage { FP32, FP16, BF16 };

INLINE int storage_bytes(int kind) { return kind == FP32 ? 4 : 2; }

INLINE const void *element(const void *x, int kind, int64_t position)
{
    return (const char *)x + position * storage_bytes(kind);
}

INLINE vfloat widen(vhalf bits, int kind) { return kind == FP16 ? widen_fp16(bits) : widen_bf16(bits); }
INLINE vhalf narrow(vfloat value, int kind) { return kind == FP16 ? narrow_fp16(value) : narrow_bf16(value); }

INLINE vfloat load_stored(const void *x, int kind, int64_t position)
{
    const void *from = element(x, kind, position);
    return kind == FP32 ? load(from) : widen(load_half(from), kind);
}

INLINE vfloat load_stored_first(const void *x, int kind, int64_t position, int n)
{
    const void *from = element(x, kind, position);
    return kind == FP32 ? load_first(from, n) : widen(load_half_first(from, n), kind);
}

INLINE void store_stored(void *out, int kind, int64_t position, vfloat value)
{
    void *to = (void *)element(out, kind, position);
    if (kind == FP32)
        store(to, value);
    else
        store_half(to, narrow(value, kind));
}

INLINE void store_stored_first(void *out, int kind, int64_t position, vfloat value, int n)
{
    void *to = (void *)element(out, kind, position);
    if (kind == FP32) {
        store_first(to, value, n);
    } else {
        vhalf bits = narrow(value, kind);
        memcpy(to, &bits, (size_t)n * 2);
    }
}

#endif
