/* What dispatch.c needs from each compilation of the kernel files, and the names it goes by there. */
#ifndef FASTGC_LEVELS_H
#define FASTGC_LEVELS_H

#include "fastgc.h"

#define FGC_JOIN2(name, level) name##_##level
#define FGC_JOIN(name, level) FGC_JOIN2(name, level)
#define FGC_AT_LEVEL(name) FGC_JOIN(name, FGC_LEVEL)

#ifdef FGC_SANITIZED /* where checks of all that is inlined take minutes to compile */
#define FGC_INLINE inline
#elif defined(__GNUC__) || defined(__clang__)
#define FGC_INLINE inline __attribute__((always_inline))
#else
#define FGC_INLINE inline
#endif

#if defined(__clang__)
#define FGC_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define FGC_UNROLL _Pragma("GCC unroll 8")
#else
#define FGC_UNROLL
#endif

#if defined(__GNUC__) || defined(__clang__)
#define FGC_PREFETCH(address) __builtin_prefetch(address)
#else
#define FGC_PREFETCH(address) ((void)0)
#endif

/* Bytes of one register: vectors of a wider type are split badly. 0: no vector extensions. */
#if !defined(__GNUC__) && !defined(__clang__)
#define FGC_VECTOR 0
#elif defined(__AVX512F__)
#define FGC_VECTOR 64
#elif defined(__AVX__)
#define FGC_VECTOR 32
#else
#define FGC_VECTOR 16
#endif

/* Factors multiplied between two normalisations of a cyclic product. A factor lies between pi/m and
 * m/pi, so that 32 of them stay inside a double's range for every m below 2^31. */
enum { FGC_RUN = 32 };

/* Workers of a block that are handled at a time, at most: their products stay in the nearest cache. */
enum { FGC_CHUNK = 1024 };

/* The functions of one SIMD level. */
#define FGC_DECLARE_LEVEL(level)                                                                   \
    void fgc_cyclic_product_##level(const double *table, int64_t len, const int64_t *index,        \
                                    int64_t count, double *product, int64_t *exponent);            \
    void fgc_cyclic_step_##level(const double *factor, int64_t len, int full, double *product,     \
                                 int64_t *exponent);                                               \
    void fgc_cyclic_size_##level(const double *product, const int64_t *exponent, int64_t len,      \
                                 double *size);                                                    \
    void fgc_turn_##level(const double *phase, int64_t m, int64_t turn, int64_t stride,            \
                          int quarter, double scale, const double *size, int64_t len,              \
                          double *value);                                                          \
    int fgc_combine_float_##level(fgc_mode mode, const uintptr_t *rows, const double *coef,        \
                                  int64_t count, int64_t lo, int64_t hi, int64_t in_len,           \
                                  int64_t out_len, int flags, float *out);                         \
    int fgc_combine_double_##level(fgc_mode mode, const uintptr_t *rows, const double *coef,       \
                                   int64_t count, int64_t lo, int64_t hi, int64_t in_len,          \
                                   int64_t out_len, int flags, double *out);                       \
    int fgc_combine_half_##level(fgc_mode mode, const uintptr_t *rows, const double *coef,         \
                                 int64_t count, int64_t lo, int64_t hi, int64_t in_len,            \
                                 int64_t out_len, int flags, float *out);                          \
    int fgc_combine_bfloat_##level(fgc_mode mode, const uintptr_t *rows, const double *coef,       \
                                   int64_t count, int64_t lo, int64_t hi, int64_t in_len,          \
                                   int64_t out_len, int flags, float *out);                        \
    double fgc_square_sum_float_##level(const float *x, int64_t len);                              \
    double fgc_square_sum_double_##level(const double *x, int64_t len);                            \
    double fgc_square_sum_half_##level(const uint16_t *x, int64_t len);                            \
    double fgc_square_sum_bfloat_##level(const uint16_t *x, int64_t len);                          \
    double fgc_sgd_float_##level(float *theta, float *velocity, const float *gradient, double lr,  \
                                 double momentum, int64_t len);                                    \
    double fgc_sgd_double_##level(double *theta, double *velocity, const double *gradient,         \
                                  double lr, double momentum, int64_t len);                        \
    double fgc_nesterov_float_##level(float *theta, float *point, const float *gradient,           \
                                      double lr, double momentum, int64_t len);                    \
    double fgc_nesterov_double_##level(double *theta, double *point, const double *gradient,       \
                                       double lr, double momentum, int64_t len);                   \
    double fgc_amsgrad_float_##level(float *theta, float *h, float *v, const float *gradient,      \
                                     double lr, double beta1, double beta2, double epsilon,        \
                                     int64_t len);                                                 \
    double fgc_amsgrad_double_##level(double *theta, double *h, double *v, const double *gradient, \
                                      double lr, double beta1, double beta2, double epsilon,       \
                                      int64_t len);                                                \
    double fgc_replace_float_##level(float *old, const float *new, float *total, int64_t len);     \
    double fgc_replace_double_##level(double *old, const double *new, double *total, int64_t len); \
    double fgc_square_distance_float_##level(const float *x, const float *y, int64_t len);         \
    double fgc_square_distance_double_##level(const double *x, const double *y, int64_t len);      \
    fgc_status fgc_leja_order_##level(const double *nodes, int64_t m, int complex,                 \
                                      int64_t *order);                                             \
    fgc_status fgc_solve_vandermonde_##level(const double *nodes, const double *b,                 \
                                             const int64_t *order, double *out, int64_t m,         \
                                             int64_t width, int flags);                            \
    void fgc_lagrange_products_##level(const double *nodes, int64_t m, const double *points,       \
                                       int64_t p, int complex, double *mantissa,                   \
                                       int64_t *exponent, int64_t *hit);                           \
    fgc_status fgc_lagrange_basis_##level(const double *nodes, const double *weights,              \
                                          const int64_t *weight_exponent, int64_t m,               \
                                          const double *points, int64_t p, int complex, int sum,   \
                                          double *out);

FGC_DECLARE_LEVEL(baseline)
FGC_DECLARE_LEVEL(avx2)
FGC_DECLARE_LEVEL(avx512)

#endif
