/* Macros that the kernel files share, and the names that their functions have at each SIMD level. */
#ifndef FASTGC_LEVELS_H
#define FASTGC_LEVELS_H

#include "fastgc.h"

#define FGC_JOIN2(name, level) name##_##level
#define FGC_JOIN(name, level) FGC_JOIN2(name, level)
#define FGC_AT_LEVEL(name) FGC_JOIN(name, FGC_LEVEL)

#if !defined(__GNUC__) && !defined(__clang__)
#error "the kernels use vector extensions of C: compile them with GCC or Clang"
#endif

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "compile the kernels without -ffast-math: they tell numbers from NaN and Inf, and round as written"
#endif

#ifdef FGC_SANITIZED /* with the sanitizers' checks, forced inlining takes minutes to compile */
#define FGC_INLINE inline
#else
#define FGC_INLINE inline __attribute__((always_inline))
#endif

#define FGC_NOINLINE __attribute__((noinline))
#define FGC_PREFETCH(address) __builtin_prefetch(address)

#if defined(__clang__)
#define FGC_UNROLL _Pragma("unroll")
#else
#define FGC_UNROLL _Pragma("GCC unroll 8")
#endif

/* Bytes of one vector register: compilers split wider vectors badly. */
#if defined(__AVX512F__)
#define FGC_VECTOR 64
#elif defined(__AVX__)
#define FGC_VECTOR 32
#else
#define FGC_VECTOR 16
#endif

/* Factors that are multiplied between two normalisations of a cyclic product. A factor lies between pi/m
 * and m/pi, so that 32 of them stay inside a double's range for every m below 2^31. */
enum { FGC_RUN = 32 };

/* At most so many workers of a block are handled at a time: their products stay in the nearest cache. */
enum { FGC_CHUNK = 1024 };

/* The functions of one SIMD level, which dispatch.c defines. */
typedef struct {
    const char *name;
#define FGC_KERNEL(type, name, parameters, arguments) type(*name) parameters;
#include "kernels.def"
} fgc_level;

extern const fgc_level fgc_level_baseline, fgc_level_avx2, fgc_level_avx512;

#ifdef FGC_LEVEL
#define FGC_KERNEL(type, name, parameters, arguments) type FGC_AT_LEVEL(fgc_##name) parameters;
#include "kernels.def"
#endif

#endif
