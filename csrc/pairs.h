/* Numbers of twice a double's precision, as pairs: high + low, where high is the sum rounded to a double.
 *
 * Each sum and product of doubles below must be rounded by itself. So files that include this are compiled
 * without contraction (see CMakeLists.txt), which would fuse products into sums whose rounding error is
 * computed. */
#ifndef FASTGC_PAIRS_H
#define FASTGC_PAIRS_H

#include "vector.h"

#if FGC_VECTOR && defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef struct {
    vector high, low;
} pair;

/* a b + c rounded once, if the processor can. */
#if FGC_VECTOR && defined(__AVX512F__)
#define FUSED(a, b, c) _mm512_fmadd_pd(a, b, c)
#elif FGC_VECTOR && defined(__FMA__)
#define FUSED(a, b, c) _mm256_fmadd_pd(a, b, c)
#elif FGC_VECTOR && defined(__aarch64__)
#define FUSED(a, b, c) vfmaq_f64(c, a, b)
#endif

/* Return the sum and its rounding error (Knuth). */
static FGC_INLINE pair two_sum(vector a, vector b)
{
    const vector sum = a + b, rest = sum - a;
    return (pair){sum, (a - (sum - rest)) + (b - rest)};
}

/* The same if a is 0, or no smaller than b in modulus (Dekker). */
static FGC_INLINE pair quick_two_sum(vector a, vector b)
{
    const vector sum = a + b;
    return (pair){sum, b - (sum - a)};
}

#ifndef FUSED
/* Split a double into halves of 26 bits, whose products are exact (Veltkamp). */
static FGC_INLINE pair halves(vector a)
{
    const vector large = a * 134217729.0, high = large - (large - a);
    return (pair){high, a - high};
}
#endif

/* Return the product and its rounding error (Dekker). */
static FGC_INLINE pair two_product(vector a, vector b)
{
    const vector product = a * b;
#ifdef FUSED
    return (pair){product, FUSED(a, b, -product)};
#else
    const pair x = halves(a), y = halves(b);
    return (pair){product, ((x.high * y.high - product) + x.high * y.low + x.low * y.high) +
                               x.low * y.low};
#endif
}

/* Return a b + c, rounded once or twice. */
static FGC_INLINE vector fused(vector a, vector b, vector c)
{
#ifdef FUSED
    return FUSED(a, b, c);
#else
    return a * b + c;
#endif
}

/* Keep the compiler from computing anything further before this vector is known. Otherwise it mixes rows,
 * and runs out of sixteen registers (1.3 times the time). */
#if FGC_VECTOR && defined(__x86_64__)
#define KEEP_ORDER(vector) __asm__("" : "+v"(vector))
#else
#define KEEP_ORDER(vector) ((void)0)
#endif

/* sum += a v, not normalised: high parts are added up without error (Ogita, Rump and Oishi, "Accurate sum
 * and dot product", 2005). v's low parts are read only if `paired`. Some processors have separate units for
 * sums and for products, and here are more sums: one is written as a product (0.93 times the time). */
static FGC_INLINE void add_product(pair *sum, pair a, pair v, const int paired)
{
    const vector product = a.high * v.high, high = sum->high + product, added = high - sum->high;
    const vector lost = sum->high - (high - added);
#ifdef FUSED
    vector low = FUSED(a.high, v.high, -added); /* product less `added`, rounded once */
#else
    vector low = (product - added) + two_product(a.high, v.high).low;
#endif
    low = fused(a.low, v.high, low);
    if (paired)
        low = fused(a.high, v.low, low);
    sum->high = high;
    sum->low += lost;
#ifdef FUSED
    vector one = spread(1);
    ROUND(one); /* hides from the compiler that this is a sum */
    sum->low = FUSED(low, one, sum->low);
#else
    sum->low += low;
#endif
    KEEP_ORDER(sum->low);
}

/* Return a double as a pair. */
static FGC_INLINE pair widened(vector x) { return (pair){x, spread(0)}; }

static FGC_INLINE pair negative(pair x) { return (pair){-x.high, -x.low}; }

/* Return x + y, within a few roundings of the larger one's low part. */
static FGC_INLINE pair sum_of(pair x, pair y)
{
    const pair sum = two_sum(x.high, y.high);
    return quick_two_sum(sum.high, sum.low + (x.low + y.low));
}

static FGC_INLINE pair product_of(pair x, pair y)
{
    const pair product = two_product(x.high, y.high);
    return quick_two_sum(product.high,
                         fused(x.high, y.low, fused(x.low, y.high, product.low)));
}

/* Return the quotient, by long division. */
static FGC_INLINE pair quotient_of(pair x, pair y)
{
    pair quotient = widened(x.high / y.high);
    for (int step = 0; step < 2; step++) {
        const pair left = sum_of(x, negative(product_of(quotient, y)));
        quotient = quick_two_sum(quotient.high, quotient.low + left.high / y.high);
    }
    return quotient;
}

#endif
