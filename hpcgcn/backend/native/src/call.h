/* How Python calls an operation: a flat list of arguments in, a number or an error out. Shared by all levels. */
#ifndef HPCGCN_CALL_H
#define HPCGCN_CALL_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_ARGUMENTS 24

typedef struct {
    void *data;         /* an array's first byte, NULL for None */
    int64_t bytes;      /* an array's size, 0 for None */
    int64_t integer;
    double number;
} argument;

typedef struct {
    argument in[MAX_ARGUMENTS];
    double result;
    const char *error;  /* set by an operation that refuses its arguments */
} call;

/* The signature has one letter an argument. Arrays (or None): f float32, j int32, l int64, b bytes, s of any item
 * size, capital if written. Numbers: i integer, d real. A signature that ends in = returns call.result. */
typedef struct {
    const char *name, *signature;
    void (*run)(call *);
} operation;

extern const operation hpcgcn_operations_plain[];
extern const operation hpcgcn_operations_avx2[];
extern const operation hpcgcn_operations_avx512[];

/* Refuse the call: an error of the program must not become a stray write. */
#define REQUIRE(condition, message)         \
    do {                                    \
        if (!(condition)) {                 \
            c->error = message;             \
            return;                         \
        }                                   \
    } while (0)

#endif
