/* Linear combinations of long vectors: encoding and decoding. Memory-bound; every row is read once,
 * and the output is the accumulator. */
#include <string.h>

#include "levels.h"

/* Reading at full bandwidth is a matter of how rows are walked. Measured at 68 rows of 10^6 doubles
 * as a fraction of a plain sequential read: 8 rows at once in blocks of 1024 elements 0.81, 4 rows
 * 0.77; 4 rows in blocks of 16384 0.80, and 0.97 with lines asked for 2048 bytes ahead, across the
 * change of rows. Longer blocks gain nothing. */
enum { GROUP = 4, BLOCK = 16384, AHEAD_BYTES = 2048 };

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)0)
#endif

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

#define REAL float
#define BITS uint32_t
#define EXPONENT UINT32_C(0x7f800000)
#define PAIRS PAIRS_FLOAT
#define NAME(x) FGC_AT_LEVEL(x##_float)
#include "combine.inc"
#undef REAL
#undef BITS
#undef EXPONENT
#undef PAIRS
#undef NAME

#define REAL double
#define BITS uint64_t
#define EXPONENT UINT64_C(0x7ff0000000000000)
#define PAIRS PAIRS_DOUBLE
#define NAME(x) FGC_AT_LEVEL(x##_double)
#include "combine.inc"
