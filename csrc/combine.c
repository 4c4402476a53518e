/* Linear combinations of long vectors: encoding and decoding. Memory-bound; every row is read once. */
#include <stdlib.h>
#include <string.h>

#include "levels.h"

#if FGC_VECTOR && defined(__x86_64__)
#include <immintrin.h>
#endif

/* Reading at full bandwidth is a matter of how rows are walked. Measured at 68 rows of 10^6 doubles
 * as a fraction of a plain sequential read: 4 rows at once in blocks of 16384 elements 0.80, and 0.97
 * with lines asked for 2048 bytes ahead, across the change of rows. Groups of 8 rows, and several lines
 * of a row at a time, take 1.07 times the time. */
enum { GROUP = 4, BLOCK = 16384, HALF = BLOCK / 2, AHEAD_BYTES = 2048 };

/* Up to this size rows are in the cache: nothing is asked for ahead, and more rows make a group, as many
 * as rounding errors allow (fastgc/kernels/rows.py knows of their number) and registers are for. Where
 * sums are wider than rows, all of them make one group then, so that sums stay in registers: 0.9 times
 * the time. (Beyond it, so many streams of addresses take three times as long.) */
enum { CACHED_BYTES = 1 << 21, CACHED_GROUP = FGC_VECTOR > 16 ? 8 : GROUP };

/* Vectors of sums in registers, twice as many for complex coefficients. */
enum { STRIP = 4 };

/* Clang does so by itself, and warns where `rows` is no constant. */
#if defined(__clang__)
#define UNROLL_GROUP
#else
#define UNROLL_GROUP FGC_UNROLL
#endif

/* A vector that stays in its register: where two products take it, GCC reads it from memory for each
 * (1.15 times the time, 1.3 where vectors cross lines). */
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
} terms;

/* Halves are IEEE's binary16, bfloats the upper halves of floats. */
typedef uint16_t half, bfloat;

/* A half's bits as a float's, without branches; for scalars and vectors alike. Its exponent and fraction
 * moved into place make a float too small by 2^112: the exponent is raised by as much, and once more if
 * it is the largest (Inf, NaN). If it is the smallest (zero, subnormals), a leading one is put before the
 * fraction, and what that adds, 2^-14, is the `surplus`: no float on the way is subnormal. */
#define HALF_TO_FLOAT(half, kept, raised, surplus, sign)                                           \
    kept = (half & 0x7fff) << 13;                                                                  \
    surplus = 0 - ((kept - (UINT32_C(1) << 23)) >> 31);                                            \
    raised = kept + (UINT32_C(112) << 23) + (surplus & (UINT32_C(1) << 23)) +                      \
             ((0 - ((kept + (UINT32_C(1) << 23)) >> 28)) & (UINT32_C(112) << 23));                 \
    surplus &= UINT32_C(113) << 23;                                                                \
    sign = (half & 0x8000) << 16

/* What an element of a row stands for. */
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

#if FGC_VECTOR
typedef float vector_float __attribute__((vector_size(FGC_VECTOR)));
typedef double vector_double __attribute__((vector_size(FGC_VECTOR)));
typedef uint32_t bits_float __attribute__((vector_size(FGC_VECTOR)));
typedef uint64_t bits_double __attribute__((vector_size(FGC_VECTOR)));

/* Swap the halves of each pair. Left to itself, the compiler vectorises complex products for some
 * numbers of rows only (GCC 12). */
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

/* load_X_Y: X's from anywhere as one vector of Y's; store_X_Y: back. */
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

static FGC_INLINE void store_float_float(float *to, vector_float v) { memcpy(to, &v, sizeof v); }
static FGC_INLINE void store_double_double(double *to, vector_double v) { memcpy(to, &v, sizeof v); }

/* load_some_X_Y, store_some_X_Y: the first `count` of them, 1 to all but one; the rest of a vector is 0. */
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

static FGC_INLINE vector_double load_some_float_double(const float *from, int count)
{
    return _mm512_cvtps_pd(_mm256_maskz_loadu_ps((__mmask8)FIRST(count), from));
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

static FGC_INLINE void store_some_double_double(double *to, vector_double v, int count)
{
    _mm512_mask_storeu_pd(to, (__mmask8)FIRST(count), v);
}

static FGC_INLINE void store_some_float_float(float *to, vector_float v, int count)
{
    _mm512_mask_storeu_ps(to, (__mmask16)FIRST(count), v);
}

static FGC_INLINE void store_some_float_double(float *to, vector_double v, int count)
{
    _mm256_mask_storeu_ps(to, (__mmask8)FIRST(count), _mm512_cvtpd_ps(v));
}
#endif

/* By intrinsics where there are some: GCC 12 takes narrow vectors that become wide ones to pieces. */
#if defined(__AVX512F__)
static FGC_INLINE vector_double load_float_double(const float *from)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(from));
}

static FGC_INLINE void store_float_double(float *to, vector_double v)
{
    _mm256_storeu_ps(to, _mm512_cvtpd_ps(v));
}

static FGC_INLINE bits_float load_bits(const uint16_t *from)
{
    return (bits_float)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
}
#elif defined(__AVX2__)
static FGC_INLINE vector_double load_float_double(const float *from)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(from));
}

static FGC_INLINE void store_float_double(float *to, vector_double v)
{
    _mm_storeu_ps(to, _mm256_cvtpd_ps(v));
}

static FGC_INLINE bits_float load_bits(const uint16_t *from)
{
    return (bits_float)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
}
#elif defined(__x86_64__) && FGC_VECTOR == 16
static FGC_INLINE vector_double load_float_double(const float *from)
{
    return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)from)));
}

static FGC_INLINE void store_float_double(float *to, vector_double v)
{
    _mm_storel_epi64((__m128i *)to, _mm_castps_si128(_mm_cvtpd_ps(v)));
}

static FGC_INLINE bits_float load_bits(const uint16_t *from)
{
    const __m128i bits = _mm_loadl_epi64((const __m128i *)from);
    return (bits_float)_mm_unpacklo_epi16(bits, _mm_setzero_si128());
}
#else
typedef float half_floats __attribute__((vector_size(FGC_VECTOR / 2)));
typedef uint16_t half_lanes __attribute__((vector_size(FGC_VECTOR / 2)));

static FGC_INLINE vector_double load_float_double(const float *from)
{
    half_floats v;
    memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, vector_double);
}

static FGC_INLINE void store_float_double(float *to, vector_double v)
{
    const half_floats rounded = __builtin_convertvector(v, half_floats);
    memcpy(to, &rounded, sizeof rounded);
}

static FGC_INLINE bits_float load_bits(const uint16_t *from)
{
    half_lanes v;
    memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, bits_float);
}
#endif

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
#endif

/* NaN or Inf among x: all exponent bits set. Bitwise, so that it vectorises without fast-math. */
#define NONFINITE(real, unsigned, exponent)                                                        \
    static int nonfinite_##real(const real *x, int64_t len)                                        \
    {                                                                                              \
        unsigned found = 0;                                                                        \
        for (int64_t j = 0; j < len; j++) {                                                        \
            unsigned bits;                                                                         \
            memcpy(&bits, x + j, sizeof bits);                                                     \
            found |= (unsigned)((bits & exponent) == exponent);                                    \
        }                                                                                          \
        return found != 0;                                                                         \
    }
NONFINITE(float, uint32_t, UINT32_C(0x7f800000))
NONFINITE(double, uint64_t, UINT64_C(0x7ff0000000000000))

/* Sixteen lanes: an order of summation that vectorises without fast-math. */
#define SQUARE_SUM(name, row, type)                                                                \
    double name(const type *x, int64_t len)                                                        \
    {                                                                                              \
        double lane[16] = {0}, sum = 0;                                                            \
        int64_t j = 0;                                                                             \
        for (; j + 16 <= len; j += 16)                                                             \
            for (int t = 0; t < 16; t++)                                                           \
                lane[t] += (double)value_##row(x[j + t]) * (double)value_##row(x[j + t]);          \
        for (int t = 0; t < 16; t++)                                                               \
            sum += lane[t];                                                                        \
        for (; j < len; j++)                                                                       \
            sum += (double)value_##row(x[j]) * (double)value_##row(x[j]);                          \
        return sum;                                                                                \
    }
SQUARE_SUM(FGC_AT_LEVEL(fgc_square_sum_float), float, float)
SQUARE_SUM(FGC_AT_LEVEL(fgc_square_sum_double), double, double)
SQUARE_SUM(FGC_AT_LEVEL(fgc_square_sum_half), half, uint16_t)
SQUARE_SUM(FGC_AT_LEVEL(fgc_square_sum_bfloat), bfloat, uint16_t)

#define ROW double
#define SUM double
#define OUT double
#include "combine.inc"

#define ROW float
#define SUM double
#define OUT float
#include "combine.inc"

#define ROW float
#define SUM float
#define OUT float
#include "combine.inc"

#define ROW half
#define SUM float
#define OUT float
#include "combine.inc"

#define ROW bfloat
#define SUM float
#define OUT float
#include "combine.inc"

#define COMBINE(name, out, ...)                                                                    \
    int name(fgc_mode mode, const uintptr_t *rows, const double *coef, int64_t count, int64_t lo,  \
             int64_t hi, int64_t in_len, int64_t out_len, int flags, out *to)                      \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define BODY(name, count) name(mode, rows, coef, count, lo, hi, in_len, out_len, flags, to)
COMBINE(FGC_AT_LEVEL(fgc_combine_double), double, return BODY(combine_double_double, count);)
/* One row, as in streaming encoding, is not worth wider sums: one rounding more, in half the time.
 * Its count is a constant, which spares compiling all that many rows need. */
COMBINE(FGC_AT_LEVEL(fgc_combine_float), float,
        return count == 1 ? BODY(combine_float_float, 1) : BODY(combine_float_double, count);)
COMBINE(FGC_AT_LEVEL(fgc_combine_half), float, return BODY(combine_half_float, count);)
COMBINE(FGC_AT_LEVEL(fgc_combine_bfloat), float, return BODY(combine_bfloat_float, count);)

/* Rows and coefficients of a combination of chosen rows; returns how many. */
static int64_t choose(fgc_mode mode, const uintptr_t *table, const int64_t *numbers,
                      const double *coef, int64_t count, uintptr_t *rows, double *chosen)
{
    const int64_t stride = mode == FGC_REAL ? 1 : 2;
    int64_t used = 0;
    for (int64_t r = 0; r < count; r++) {
        const double x = coef[stride * r], y = coef[stride * r + stride - 1];
        rows[used] = table[numbers[r]];
        chosen[stride * used] = x;
        chosen[stride * used + stride - 1] = y;
        used += x != 0 || y != 0;
    }
    return used;
}

#define COMBINE_CHOSEN(kind, real)                                                                 \
    fgc_status FGC_AT_LEVEL(fgc_combine_chosen_##kind)(                                            \
        fgc_mode mode, const uintptr_t *table, const int64_t *numbers, const double *coef,         \
        int64_t in_len, int64_t out_len, int flags, real *out, int64_t count, int64_t lo,          \
        int64_t hi)                                                                                \
    {                                                                                              \
        /* room for one more, or it might be NULL for none */                                      \
        char *work = malloc((size_t)(count + 1) * (2 * sizeof(double) + sizeof(uintptr_t)));       \
        if (!work)                                                                                 \
            return FGC_NO_MEMORY;                                                                  \
        double *chosen = (double *)work;                                                           \
        uintptr_t *rows = (uintptr_t *)(chosen + 2 * (count + 1));                                 \
        const int64_t used = choose(mode, table, numbers, coef, count, rows, chosen);              \
        const int bad = FGC_AT_LEVEL(fgc_combine_##kind)(mode, rows, chosen, used, lo, hi, in_len, \
                                                         out_len, flags, out);                     \
        free(work);                                                                                \
        return bad ? FGC_NOT_FINITE : FGC_OK;                                                      \
    }
COMBINE_CHOSEN(float, float)
COMBINE_CHOSEN(double, double)
COMBINE_CHOSEN(half, float)
COMBINE_CHOSEN(bfloat, float)

/* Elements of a row that are still in the first cache when their squares are added up. */
enum { NEAR = 4096 };

#define ENCODE(kind, row, real)                                                                    \
    double FGC_AT_LEVEL(fgc_encode_##kind)(                                                        \
        fgc_mode mode, const uintptr_t *rows, const double *coef, const double *weight,            \
        int64_t count, int64_t in_len, int64_t out_len, int flags, real *out, int64_t lo,          \
        int64_t hi)                                                                                \
    {                                                                                              \
        double sum = 0;                                                                            \
        for (int64_t to; lo < hi; lo = to) {                                                       \
            to = hi - lo < NEAR ? hi : lo + NEAR;                                                  \
            FGC_AT_LEVEL(fgc_combine_##kind)(mode, rows, coef, count, lo, to, in_len, out_len,     \
                                             flags, out);                                          \
            const int64_t len = (to < in_len ? to : in_len) - lo;                                  \
            for (int64_t r = 0; r < count; r++)                                                    \
                sum += weight[r] * FGC_AT_LEVEL(fgc_square_sum_##kind)((const row *)rows[r] + lo,  \
                                                                       len);                       \
        }                                                                                          \
        return sum;                                                                                \
    }
ENCODE(float, float, float)
ENCODE(double, double, double)
ENCODE(half, uint16_t, float)
ENCODE(bfloat, uint16_t, float)
