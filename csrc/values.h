/* The values of the elements of rows, whatever their kind. */
#ifndef FASTGC_VALUES_H
#define FASTGC_VALUES_H

#include <string.h>

#include "levels.h"

/* Halves are IEEE's binary16, bfloats the upper halves of floats. They are converted as they are read.
 * Rejected in combine.c: to convert a group's rows a block at a time and add up floats, which takes 1.2 to 2
 * times the time in caches, and 2 times from memory. */
typedef uint16_t half, bfloat;

/* Convert a half's bits to a float's, without branches, for scalars and vectors alike. The half's exponent
 * and fraction, moved into place, make a float that is too small by 2^112: the exponent is raised by 112,
 * and once more if it is the largest (Inf, NaN). For the smallest exponent (zero, subnormals) a leading one
 * is put before the fraction. It adds 2^-14, the `surplus`, which the caller subtracts: so no intermediate
 * float is subnormal. */
#define HALF_TO_FLOAT(half, kept, raised, surplus, sign)                                                     \
    kept = (half & 0x7fff) << 13;                                                                            \
    surplus = 0 - ((kept - (UINT32_C(1) << 23)) >> 31);                                                      \
    raised = kept + (UINT32_C(112) << 23) + (surplus & (UINT32_C(1) << 23)) +                                \
             ((0 - ((kept + (UINT32_C(1) << 23)) >> 28)) & (UINT32_C(112) << 23));                           \
    surplus &= UINT32_C(113) << 23;                                                                          \
    sign = (half & 0x8000) << 16

/* The value of one element of a row. */
static FGC_INLINE double value_double(double x) { return x; }
static FGC_INLINE float value_float(float x) { return x; }

static FGC_INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static FGC_INLINE float value_half(half x)
{
    const uint32_t bits = x;
    uint32_t kept, raised, surplus, sign;
    HALF_TO_FLOAT(bits, kept, raised, surplus, sign);
    const float size = float_of(raised) - float_of(surplus);
    return sign ? -size : size;
}

static FGC_INLINE float value_bfloat(bfloat x) { return float_of((uint32_t)x << 16); }

#endif
