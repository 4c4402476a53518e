/* Vectors of doubles of the level's width, and vectors of numbers (real, or complex as two vectors). */
#ifndef FASTGC_VECTOR_H
#define FASTGC_VECTOR_H

#include <math.h>
#include <string.h>

#include "levels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
typedef double vector __attribute__((vector_size(FGC_VECTOR)));
typedef int64_t lanes __attribute__((vector_size(FGC_VECTOR)));

enum { LANES = sizeof(vector) / sizeof(double) };

static FGC_INLINE double greater(double a, double b) { return a > b ? a : b; }

static FGC_INLINE uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static FGC_INLINE double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Return 2^e, -1022 <= e <= 1023. */
static FGC_INLINE double power_of_two(int64_t e) { return from_bits((uint64_t)(1023 + e) << 52); }

/* Return the exponent of a normal number. */
static FGC_INLINE int64_t exponent_of(double x) { return (int64_t)(bits_of(x) >> 52 & 0x7ff) - 1023; }

/* Return the first address at or after `memory` at which a cache line begins. */
static FGC_INLINE void *aligned(void *memory) { return (void *)(((uintptr_t)memory + 63) & ~(uintptr_t)63); }

/* Return m rounded up to full vectors. */
static FGC_INLINE int64_t padded_size(int64_t m) { return (m + LANES - 1) / LANES * LANES; }

static FGC_INLINE vector load(const double *from)
{
    vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

static FGC_INLINE void store(double *to, vector v) { memcpy(to, &v, sizeof v); }

/* Round a product (a vector or a double) before something is added to it. Else the compiler may fuse the
 * two, and the result would differ from that of levels and backends that cannot. */
#if defined(__x86_64__)
#define ROUND(product) __asm__("" : "+x"(product))
#elif defined(__aarch64__)
#define ROUND(product) __asm__("" : "+w"(product))
#else
#define ROUND(product) (*(volatile __typeof__(product) *)&(product) = (product))
#endif

static FGC_INLINE double sum_of_lanes(vector v)
{
    double sum = 0;
    for (int t = 0; t < LANES; t++)
        sum += v[t];
    return sum;
}

static FGC_INLINE vector spread(double x) { return x - (vector){0}; }

/* Return a mask of lanes t+1, t+2, ...: all their bits are set, in other lanes none. */
static FGC_INLINE lanes after(int t)
{
    lanes index;
    for (int i = 0; i < LANES; i++)
        index[i] = i;
    return index > t;
}

static FGC_INLINE vector pick(lanes mask, vector yes, vector no)
{
    return (vector)(((lanes)yes & mask) | ((lanes)no & ~mask));
}

/* from_last and from_second take LANES consecutive lanes of a followed by b: from the last lane of a on,
 * and from the second lane of a on. */
#if FGC_VECTOR == 64
#define FROM_LAST 7, 8, 9, 10, 11, 12, 13, 14
#define FROM_SECOND 1, 2, 3, 4, 5, 6, 7, 8
#elif FGC_VECTOR == 32
#define FROM_LAST 3, 4, 5, 6
#define FROM_SECOND 1, 2, 3, 4
#else
#define FROM_LAST 1, 2
#define FROM_SECOND 1, 2
#endif
#if defined(__clang__)
#define WINDOW(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define WINDOW(a, b, ...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif

static FGC_INLINE vector from_last(vector a, vector b) { return WINDOW(a, b, FROM_LAST); }

static FGC_INLINE vector from_second(vector a, vector b) { return WINDOW(a, b, FROM_SECOND); }

static FGC_INLINE vector larger(vector a, vector b)
{
#if defined(__AVX512F__)
    return _mm512_max_pd(a, b);
#elif defined(__AVX__)
    return _mm256_max_pd(a, b);
#elif defined(__SSE2__)
    return _mm_max_pd(a, b);
#else
    return pick(a > b, a, b);
#endif
}

static FGC_INLINE vector smaller(vector a, vector b)
{
#if defined(__AVX512F__)
    return _mm512_min_pd(a, b);
#elif defined(__AVX__)
    return _mm256_min_pd(a, b);
#elif defined(__SSE2__)
    return _mm_min_pd(a, b);
#else
    return pick(a < b, a, b);
#endif
}

static FGC_INLINE double least_of_lanes(vector v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_min_pd(v);
#else
    double least = v[0];
    for (int t = 1; t < LANES; t++)
        least = v[t] < least ? v[t] : least;
    return least;
#endif
}

static FGC_INLINE double largest_of_lanes(vector v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_pd(v);
#else
    double largest = v[0];
    for (int t = 1; t < LANES; t++)
        largest = v[t] > largest ? v[t] : largest;
    return largest;
#endif
}

static FGC_INLINE int64_t sum_of_counts(lanes v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi64((__m512i)v);
#else
    int64_t sum = 0;
    for (int t = 0; t < LANES; t++)
        sum += v[t];
    return sum;
#endif
}

/* Return whether any lane is at least x. */
static FGC_INLINE int any_at_least(vector v, double x)
{
#if defined(__AVX512F__)
    return _mm512_cmp_pd_mask(v, _mm512_set1_pd(x), _CMP_GE_OQ) != 0;
#elif defined(__AVX__)
    return _mm256_movemask_pd(_mm256_cmp_pd(v, _mm256_set1_pd(x), _CMP_GE_OQ));
#elif defined(__SSE2__)
    return _mm_movemask_pd(_mm_cmpge_pd(v, _mm_set1_pd(x)));
#else
    int any = 0;
    for (int t = 0; t < LANES; t++)
        any |= v[t] >= x;
    return any;
#endif
}

static FGC_INLINE vector magnitude(vector v) { return (vector)((lanes)v & INT64_MAX); }

/* Store the lanes whose bits are set in `mask`, one after the other. Returns how many they are. A whole
 * vector at `to` is overwritten. */
static FGC_INLINE int64_t keep(double *to, lanes mask, vector v)
{
#if defined(__AVX512F__)
    const __mmask8 set = _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask);
    store(to, (vector)_mm512_maskz_compress_pd(set, (__m512d)v));
    return __builtin_popcount(set);
#else
    int64_t kept = 0;
    for (int t = 0; t < LANES; t++) {
        to[kept] = v[t];
        kept += mask[t] & 1;
    }
    return kept;
#endif
}

/* Return 1/d. With AVX-512, by two Newton steps from 14 bits, in a quarter of a division's time: within 1
 * ulp for 2^-1022 <= |d| <= 2^1022, and never finite for smaller |d|. */
static FGC_INLINE vector reciprocal(vector d)
{
#if defined(__AVX512F__)
    __m512d r = _mm512_rcp14_pd(d);
    const __m512d one = _mm512_set1_pd(1.0);
    r = _mm512_fmadd_pd(r, _mm512_fnmadd_pd(d, r, one), r);
    return _mm512_fmadd_pd(r, _mm512_fnmadd_pd(d, r, one), r);
#else
    return 1.0 / d;
#endif
}

/* Real and complex arithmetic written once. `complex` is a constant wherever these are inlined; if it is 0,
 * im is not read. */
#define BY_TYPE(function, ...) (complex ? function(__VA_ARGS__, 1) : function(__VA_ARGS__, 0))

typedef struct {
    double re, im;
} scalar;

/* Return number i of an array of numbers; a real one has im = 0. */
static FGC_INLINE scalar number_at(const double *x, int64_t i, const int complex)
{
    return (scalar){x[complex ? 2 * i : i], complex ? x[2 * i + 1] : 0};
}

static FGC_INLINE void put_number(double *x, int64_t i, scalar a, const int complex)
{
    x[complex ? 2 * i : i] = a.re;
    if (complex)
        x[2 * i + 1] = a.im;
}

static FGC_INLINE double larger_part(scalar a, const int complex)
{
    return complex ? greater(fabs(a.re), fabs(a.im)) : fabs(a.re);
}

typedef struct {
    vector re, im;
} number;

static FGC_INLINE number get(const double *re, const double *im, const int complex)
{
    return (number){load(re), complex ? load(im) : (vector){0}};
}

static FGC_INLINE void put(double *re, double *im, number a, const int complex)
{
    store(re, a.re);
    if (complex)
        store(im, a.im);
}

static FGC_INLINE number minus(number a, number b, const int complex)
{
    a.re -= b.re;
    if (complex)
        a.im -= b.im;
    return a;
}

static FGC_INLINE number times(number a, number b, const int complex)
{
    if (!complex)
        return (number){a.re * b.re, a.im};
    return (number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static FGC_INLINE number choose(lanes mask, number yes, number no, const int complex)
{
    return (number){pick(mask, yes.re, no.re), complex ? pick(mask, yes.im, no.im) : no.im};
}

static FGC_INLINE vector square(number a, const int complex)
{
    return complex ? a.re * a.re + a.im * a.im : a.re * a.re;
}

#endif
