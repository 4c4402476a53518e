/* Linear combinations of long vectors: encoding and decoding. Memory bounds the speed; every row is read
 * once. */
#include <math.h>
#include <string.h>

#include "levels.h"
#include "values.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The order in which rows are read decides the bandwidth. Measured with 68 rows of 10^6 doubles, as a
 * fraction of a plain sequential read: 0.80 with 4 rows at once in blocks of 16384 elements; 0.97 if lines
 * are also prefetched 2048 bytes ahead, across the change of rows. Rejected: groups of 8 rows, and several
 * lines of a row at a time, which take 1.07 times the time. */
enum { GROUP = 4, BLOCK = 16384, HALF = BLOCK / 2, AHEAD_BYTES = 2048 };

/* Rows of up to CACHED_BYTES together are taken to be in a cache (8 MB of the last level). Nothing is then
 * prefetched, which would take 1.3 to 1.6 times the time, and CACHED_GROUP rows make a group: as many as
 * rounding errors (fastgc/kernels/rows.py relies on the number) and registers allow. */
enum { NEAR_BYTES = 1 << 21, CACHED_BYTES = 1 << 23, CACHED_GROUP = FGC_VECTOR > 16 ? 8 : GROUP };

/* At most FOLD floats are added up as floats, and their sums as doubles: converting each float takes twice
 * the time if rows are in the cache. Rows of up to NEAR_BYTES together are added up in registers, at most
 * MOST of them: 0.9 times the time. From memory so many streams of addresses take three times as long. */
enum { FOLD = 8, MOST = 32 };

/* Vectors of sums in registers; twice as many for complex coefficients. */
enum { STRIP = 4 };

/* Rows of up to SHORT vectors are added up by masked vectors, as they are aligned; doubles of all rows at
 * once. 68 rows of 10 doubles take 0.6 times the time that groups of rows and single vectors take, 13 rows
 * of 64 doubles 0.8 times. All doubles of longer rows at once would take 1.1 times the time. */
enum { SHORT = 16 };
#define IS_SHORT(len) (FGC_MASKS && (len) * (int64_t)sizeof(OUT) <= SHORT * FGC_VECTOR)

/* Keep a vector in its register. Otherwise GCC reads a factor of two products from memory twice (1.15
 * times the time; 1.3 where vectors cross lines). */
#if defined(__x86_64__)
#define HOLD(vector) __asm__("" : "+v"(vector))
#else
#define HOLD(vector) ((void)0)
#endif

/* Rows and their coefficients x + iy, whose parts lie `stride` apart. */
typedef struct {
    const uintptr_t *row;
    const double *x, *y;
    int64_t count;
    int stride;
    double *square; /* sum of squares of each row, to be added to; or NULL */
} terms;

typedef float vector_float __attribute__((vector_size(FGC_VECTOR)));
typedef double vector_double __attribute__((vector_size(FGC_VECTOR)));
typedef uint32_t bits_float __attribute__((vector_size(FGC_VECTOR)));
typedef uint64_t bits_double __attribute__((vector_size(FGC_VECTOR)));

/* Swap the halves of each pair. By itself GCC 12 vectorises complex products only for some numbers of
 * rows. */
#if defined(__clang__)
#define SHUFFLE(vector, mask, ...) __builtin_shufflevector(vector, vector, __VA_ARGS__)
#else
#define SHUFFLE(vector, mask, ...) __builtin_shuffle(vector, (mask){__VA_ARGS__})
#endif
#define PAIRS_2 1, 0
#define PAIRS_4 PAIRS_2, 3, 2
#define PAIRS_8 PAIRS_4, 5, 4, 7, 6
#define PAIRS_16 PAIRS_8, 9, 8, 11, 10, 13, 12, 15, 14
#if FGC_VECTOR == 64
#define PAIRS_FLOAT PAIRS_16
#define PAIRS_DOUBLE PAIRS_8
#elif FGC_VECTOR == 32
#define PAIRS_FLOAT PAIRS_8
#define PAIRS_DOUBLE PAIRS_4
#else
#define PAIRS_FLOAT PAIRS_4
#define PAIRS_DOUBLE PAIRS_2
#endif

static FGC_INLINE vector_float swap_float(vector_float v) { return SHUFFLE(v, bits_float, PAIRS_FLOAT); }
static FGC_INLINE vector_double swap_double(vector_double v) { return SHUFFLE(v, bits_double, PAIRS_DOUBLE); }

/* load_X_Y reads Xs, aligned or not, as one vector of Ys; store_Y writes a vector of Ys. */
static FGC_INLINE vector_float load_float_float(const float *from)
{
    vector_float v;
    memcpy(&v, from, sizeof v);
    return v;
}

static FGC_INLINE vector_double load_double_double(const double *from)
{
    vector_double v;
    memcpy(&v, from, sizeof v);
    return v;
}

static FGC_INLINE void store_float(float *to, vector_float v) { memcpy(to, &v, sizeof v); }
static FGC_INLINE void store_double(double *to, vector_double v) { memcpy(to, &v, sizeof v); }

/* load_some_X_Y and store_some_Y: the same for the first `count` elements only, at least 1. The rest of a
 * vector that is read is 0. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define FGC_MASKS 1
#define FIRST(count) ((UINT32_C(1) << (count)) - 1)

static FGC_INLINE vector_double load_some_double_double(const double *from, int count)
{
    return _mm512_maskz_loadu_pd((__mmask8)FIRST(count), from);
}

static FGC_INLINE vector_float load_some_float_float(const float *from, int count)
{
    return _mm512_maskz_loadu_ps((__mmask16)FIRST(count), from);
}

static FGC_INLINE vector_float load_some_half_float(const half *from, int count)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16)FIRST(count), from));
}

static FGC_INLINE vector_float load_some_bfloat_float(const bfloat *from, int count)
{
    const __m256i bits = _mm256_maskz_loadu_epi16((__mmask16)FIRST(count), from);
    return (vector_float)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
}

static FGC_INLINE void store_some_double(double *to, vector_double v, int count)
{
    _mm512_mask_storeu_pd(to, (__mmask8)FIRST(count), v);
}

static FGC_INLINE void store_some_float(float *to, vector_float v, int count)
{
    _mm512_mask_storeu_ps(to, (__mmask16)FIRST(count), v);
}
#endif

static FGC_INLINE bits_float load_bits(const uint16_t *from)
{
    /* Intrinsics where there are some: GCC 12 converts a narrow vector to a wide one element by element. */
#if defined(__AVX512F__)
    return (bits_float)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__AVX2__)
    return (bits_float)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
#else
    typedef uint16_t lanes __attribute__((vector_size(FGC_VECTOR / 2)));
    lanes v;
    memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, bits_float);
#endif
}

static FGC_INLINE vector_float load_half_float(const half *from)
{
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__F16C__) && FGC_VECTOR == 32
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#else
    const bits_float bits = load_bits(from);
    bits_float kept, raised, surplus, sign;
    HALF_TO_FLOAT(bits, kept, raised, surplus, sign);
    const vector_float size = (vector_float)raised - (vector_float)surplus;
    return (vector_float)((bits_float)size | sign);
#endif
}

static FGC_INLINE vector_float load_bfloat_float(const bfloat *from)
{
    return (vector_float)(load_bits(from) << 16);
}

/* A vector of sums as doubles: a vector of floats becomes two vectors. */
typedef struct {
    vector_double low, high;
} sums_float;
typedef vector_double sums_double;

static FGC_INLINE sums_float widen_float(vector_float v)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return (sums_float){_mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                        _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1))};
#elif defined(__AVX__) && FGC_VECTOR == 32
    return (sums_float){_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                        _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))};
#else
    typedef float half_vector __attribute__((vector_size(FGC_VECTOR / 2)));
    half_vector half[2];
    memcpy(half, &v, sizeof v);
    return (sums_float){__builtin_convertvector(half[0], vector_double),
                        __builtin_convertvector(half[1], vector_double)};
#endif
}

static FGC_INLINE vector_float narrow_float(sums_float v)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(v.low)), _mm512_cvtpd_ps(v.high), 1);
#elif defined(__AVX__) && FGC_VECTOR == 32
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(v.low)), _mm256_cvtpd_ps(v.high), 1);
#else
    typedef float half_vector __attribute__((vector_size(FGC_VECTOR / 2)));
    const half_vector half[2] = {__builtin_convertvector(v.low, half_vector),
                                 __builtin_convertvector(v.high, half_vector)};
    vector_float all;
    memcpy(&all, half, sizeof all);
    return all;
#endif
}

static FGC_INLINE sums_float plus_float(sums_float a, sums_float b)
{
    return (sums_float){a.low + b.low, a.high + b.high};
}

static FGC_INLINE sums_float plus_square_float(sums_float sum, vector_float v)
{
    const sums_float x = widen_float(v);
    return (sums_float){sum.low + x.low * x.low, sum.high + x.high * x.high};
}

static FGC_INLINE sums_double widen_double(vector_double v) { return v; }
static FGC_INLINE vector_double narrow_double(sums_double v) { return v; }
static FGC_INLINE sums_double plus_double(sums_double a, sums_double b) { return a + b; }
static FGC_INLINE sums_double plus_square_double(sums_double sum, vector_double v) { return sum + v * v; }

/* Load all sums, or the first `some` if `some` is not 0. */
static FGC_INLINE sums_float load_sums_float(const double *from, int some)
{
    enum { LANES = FGC_VECTOR / sizeof(double) };
#if FGC_MASKS
    if (some)
        return (sums_float){_mm512_maskz_loadu_pd((__mmask8)FIRST(some), from),
                            _mm512_maskz_loadu_pd((__mmask8)(FIRST(some) >> LANES), from + LANES)};
#endif
    (void)some;
    return (sums_float){load_double_double(from), load_double_double(from + LANES)};
}

static FGC_INLINE void store_sums_float(double *to, sums_float v, int some)
{
    enum { LANES = FGC_VECTOR / sizeof(double) };
#if FGC_MASKS
    if (some) {
        _mm512_mask_storeu_pd(to, (__mmask8)FIRST(some), v.low);
        _mm512_mask_storeu_pd(to + LANES, (__mmask8)(FIRST(some) >> LANES), v.high);
        return;
    }
#endif
    (void)some;
    store_double(to, v.low);
    store_double(to + LANES, v.high);
}

#if FGC_MASKS
#define STORE_SOME(real, to, v, some) ((some) ? store_some_##real(to, v, some) : store_##real(to, v))
#else
#define STORE_SOME(real, to, v, some) ((void)(some), store_##real(to, v))
#endif

static FGC_INLINE sums_double load_sums_double(const double *from, int some)
{
#if FGC_MASKS
    if (some)
        return load_some_double_double(from, some);
#endif
    (void)some;
    return load_double_double(from);
}

static FGC_INLINE void store_sums_double(double *to, sums_double v, int some)
{
    STORE_SOME(double, to, v, some);
}

/* Store final sums. A non-finite one leaves bits in `found`: x - x is NaN if x is not finite, else 0. */
static FGC_INLINE void put_float(float *to, vector_float v, int some, bits_float *found)
{
    *found |= (bits_float)(v - v);
    STORE_SOME(float, to, v, some);
}

static FGC_INLINE void put_double(double *to, vector_double v, int some, bits_double *found)
{
    *found |= (bits_double)(v - v);
    STORE_SOME(double, to, v, some);
}

#ifndef FGC_MASKS
#define FGC_MASKS 0
#endif

/* Return whether x holds NaN or Inf: all exponent bits are set. Bitwise, so that it vectorises without
 * fast-math. */
#define NONFINITE(real, unsigned, exponent)                                                                  \
    static FGC_INLINE int nonfinite_##real(const real *x, int64_t len)                                       \
    {                                                                                                        \
        unsigned found = 0;                                                                                  \
        for (int64_t j = 0; j < len; j++) {                                                                  \
            unsigned bits;                                                                                   \
            memcpy(&bits, x + j, sizeof bits);                                                               \
            found |= (unsigned)((bits & exponent) == exponent);                                              \
        }                                                                                                    \
        return found != 0;                                                                                   \
    }
NONFINITE(float, uint32_t, UINT32_C(0x7f800000))
NONFINITE(double, uint64_t, UINT64_C(0x7ff0000000000000))

/* Sum of squares in sixteen lanes: an order of summation that vectorises without fast-math. Where compilers do not
 * unroll, lanes lie in memory, and it takes 2.7 times the time. */
#define SQUARE_SUM(kind, read, real)                                                                         \
    double FGC_AT_LEVEL(fgc_square_sum_part_##kind)(void *const *vector, const double *by, int64_t len)      \
    {                                                                                                        \
        (void)by;                                                                                            \
        const read *const x = vector[0];                                                                     \
        double lane[16] = {0}, sum = 0;                                                                      \
        int64_t j = 0;                                                                                       \
        for (; j + 16 <= len; j += 16) {                                                                     \
            FGC_UNROLL                                                                                       \
            for (int t = 0; t < 16; t++)                                                                     \
                lane[t] += (double)value_##kind(x[j + t]) * (double)value_##kind(x[j + t]);                  \
        }                                                                                                    \
        for (int t = 0; t < 16; t++)                                                                         \
            sum += lane[t];                                                                                  \
        for (; j < len; j++)                                                                                 \
            sum += (double)value_##kind(x[j]) * (double)value_##kind(x[j]);                                  \
        return sum;                                                                                          \
    }
FGC_KINDS(SQUARE_SUM)

/* If more bytes than this are read and written, complex sums of real rows are written past the caches: 0.8
 * to 0.95 times the time, for 3 rows and for 13. Real sums are not: 0.7 to 1.4 times the time. */
enum { APART_BYTES = CACHED_BYTES };

/* Write `len` complex sums past the caches. Their real parts are at u, the imaginary parts HALF further.
 * Returns how many were written, and sets bits of *bad if one is not finite. */
#if defined(__SSE2__)
static FGC_INLINE int64_t stream_double(double *to, const double *u, int64_t len, int *bad)
{
    __m128d found = _mm_setzero_pd();
    for (int64_t t = 0; t < len; t++) {
        const __m128d v = _mm_set_pd(u[HALF + t], u[t]);
        found = _mm_or_pd(found, _mm_sub_pd(v, v));
        _mm_stream_pd(to + 2 * t, v);
    }
    _mm_sfence();
    *bad |= _mm_movemask_epi8(_mm_cmpeq_epi32(_mm_castpd_si128(found), _mm_setzero_si128())) != 0xffff;
    return len;
}

static FGC_INLINE int64_t stream_float(float *to, const double *u, int64_t len, int *bad)
{
    __m128 found = _mm_setzero_ps();
    for (int64_t t = 0; t + 1 < len; t += 2) {
        const __m128 x = _mm_cvtpd_ps(_mm_loadu_pd(u + t)), y = _mm_cvtpd_ps(_mm_loadu_pd(u + HALF + t));
        const __m128 v = _mm_unpacklo_ps(x, y);
        found = _mm_or_ps(found, _mm_sub_ps(v, v));
        _mm_stream_ps(to + 2 * t, v);
    }
    _mm_sfence();
    *bad |= _mm_movemask_epi8(_mm_cmpeq_epi32(_mm_castps_si128(found), _mm_setzero_si128())) != 0xffff;
    return len - len % 2;
}
#else
#define stream_double(to, u, len, bad) ((int64_t)0)
#define stream_float(to, u, len, bad) ((int64_t)0)
#endif

/* Types that have complex rows, and those whose squares are added up while rows are in registers; others, of which
 * squares need doubles, are read again, as are complex sums of real rows, which would be long to compile. */
#define IS_COMPLEX_double 1
#define IS_COMPLEX_float 1
#define FUSES_double 1

#define ROW double
#define OUT double
#include "combine.inc"

#define ROW float
#define OUT float
#include "combine.inc"

#define ROW half
#define OUT float
#include "combine.inc"

#define ROW bfloat
#define OUT float
#include "combine.inc"

/* Return a float as a half's bits, rounded to nearest, ties to even. Three cases are computed and one is
 * chosen by masks, as a branch would keep the loop from vectorising; in signed integers, as AVX2 cannot
 * compare unsigned ones.
 *  - A normal half: subtract 112 from the exponent and drop 13 digits of the fraction. A carry out of the
 *    fraction rightly goes into the exponent, and out of the largest exponent makes Inf.
 *  - A smaller one: add 0.5, whose last digit is worth that of a subnormal half: the addition rounds.
 *  - A NaN keeps the digits that there is room for, and becomes a quiet one. */
static FGC_INLINE uint16_t half_of(float x)
{
    const float added = fabsf(x) + 0.5f; /* an ulp is 2^-24 */
    int32_t bits, sum;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&sum, &added, sizeof sum);
    const int32_t size = bits & 0x7fffffff;
    const int32_t normal = (size - (112 << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const int32_t large = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x1ff) : 0x7c00; /* NaN, Inf */
    const int32_t small = -(size < 113 << 23), beyond = -(size >= 143 << 23);
    const int32_t found = ((sum - (126 << 23)) & small) | (normal & ~small & ~beyond) | (large & beyond);
    return (uint16_t)(found | (bits >> 16 & 0x8000));
}

/* Return a double cut off to a float, with the last bit set if that loses anything (Boldo and Melquiond
 * 2008: rounding to odd, with two digits to spare): the float rounds to the same half as the double. */
static FGC_INLINE float odd_of(double x)
{
    float value = (float)x;
    const double back = value;
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits -= fabs(back) > fabs(x);
    bits |= (back < x) | (back > x);
    memcpy(&value, &bits, sizeof value);
    return value;
}

void FGC_AT_LEVEL(fgc_to_halves_double)(const double *x, int64_t len, uint16_t *out)
{
    for (int64_t i = 0; i < len; i++)
        out[i] = half_of(odd_of(x[i]));
}

void FGC_AT_LEVEL(fgc_to_halves_float)(const float *x, int64_t len, uint16_t *out)
{
    for (int64_t i = 0; i < len; i++)
        out[i] = half_of(x[i]);
}
