/* Sums in fixed point: numbers times a power of two, rounded to integers of 64 bits, are added up exactly,
 * so that a sum is the same in every order. Memory bounds the speed. There is no vector instruction between
 * doubles and such integers before AVX-512, so bits do it. */
#include <float.h>
#include <math.h>

#include "vector.h"

/* Elements do not depend on each other: vectors do not overlap. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* 2^exponent as a product of two numbers: a double's range has no more than half of the exponents. */
typedef struct {
    double first, second;
} scale;

static FGC_INLINE scale scale_of(double exponent)
{
    const int64_t whole = (int64_t)exponent, half = whole / 2;
    return (scale){power_of_two(half), power_of_two(whole - half)};
}

/* An integer up to 2^51 as a double plus INTEGER has its bits in the lowest places. */
static const double INTEGER = 0x1.8p52;

static FGC_INLINE uint64_t integer_in(double sum) { return bits_of(sum) - bits_of(INTEGER); }

/* Return the integer nearest to x, ties to even; |x| < 2^62. The high part is a multiple of 2^31, so it
 * is even, and what is left, which is exact, has x's ties. */
static FGC_INLINE uint64_t rounded(double x)
{
    const double high = x * 0x1p-31 + INTEGER;
    const double low = x - (high - INTEGER) * 0x1p31 + INTEGER;
    return (integer_in(high) << 31) + integer_in(low);
}

/* Return x as a double, rounded once: both halves are the low bits of doubles. */
static FGC_INLINE double real_of(uint64_t x)
{
    const double low = from_bits((x & 0xffffffff) | 0x4330000000000000);     /* 2^52 + low */
    const double high = from_bits((x >> 32) ^ UINT64_C(0x4530000080000000)); /* 2^84 + 2^63 + high */
    return high - from_bits(UINT64_C(0x4530000080100000)) + low;
}

/* Return x, or an integer near x that a double holds: one that is rounded to fewer digits as x is, because
 * its last bit is set where bits were left out. */
static FGC_INLINE uint64_t marked(uint64_t x)
{
    const uint64_t near = (x & ~UINT64_C(2047)) | (((x & 2047) + 2047) & 2048);
    return x + (UINT64_C(1) << 53) < UINT64_C(1) << 54 ? x : near;
}

#define ADD_FIXED(real)                                                                                      \
    double FGC_AT_LEVEL(fgc_add_fixed_part_##real)(void *const *vector, const double *by, int64_t len)       \
    {                                                                                                        \
        const real *const x = vector[0];                                                                     \
        uint64_t *const total = vector[1];                                                                   \
        const scale to = scale_of(by[0]);                                                                    \
        const double least = by[1], most = by[2];                                                            \
        const uint64_t keep = by[3] != 0 ? ~UINT64_C(0) : 0;                                                 \
        int64_t left_out = 0, large = 0;                                                                     \
        INDEPENDENT                                                                                          \
        for (int64_t i = 0; i < len; i++) {                                                                  \
            const double scaled = (double)x[i] * to.first * to.second, size = fabs(scaled);                  \
            const int fits = size < most; /* not if it is NaN */                                             \
            left_out += !fits;                                                                               \
            large += size >= least;                                                                          \
            total[i] = (total[i] & keep) + rounded(fits ? scaled : 0.0);                                     \
        }                                                                                                    \
        return left_out ? HUGE_VAL : (double)large;                                                          \
    }
FGC_REALS(ADD_FIXED)

#define INTEGER_float(x) real_of(marked(x))
#define INTEGER_double(x) real_of(x)
#define MOST_float FLT_MAX
#define MOST_double DBL_MAX

#define FROM_FIXED(real)                                                                                     \
    double FGC_AT_LEVEL(fgc_from_fixed_part_##real)(void *const *vector, const double *by, int64_t len)      \
    {                                                                                                        \
        real *const out = vector[0];                                                                         \
        const uint64_t *const total = vector[1];                                                             \
        const scale to = scale_of(-by[0]);                                                                   \
        int64_t beyond = 0;                                                                                  \
        INDEPENDENT                                                                                          \
        for (int64_t i = 0; i < len; i++) {                                                                  \
            const real value = (real)(INTEGER_##real(total[i]) * to.first * to.second);                      \
            out[i] = value;                                                                                  \
            beyond += !(fabs((double)value) <= MOST_##real);                                                 \
        }                                                                                                    \
        return (double)beyond;                                                                               \
    }
FGC_REALS(FROM_FIXED)
