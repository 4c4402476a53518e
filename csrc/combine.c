/* Linear combinations of long vectors: encoding and decoding. Memory-bound; every row is read once.
 *
 * A complex combination of rows v_r with coefficients a_r + i b_r is kept as two real ones,
 *     U = sum a_r v_r,  W = sum b_r v_r,
 * which need no shuffling while rows stream through; U + iW is put together once per block. */
#include <string.h>

#include "levels.h"

/* Reading at full bandwidth is a matter of how rows are walked. Measured at 68 rows of 10^6 doubles
 * as a fraction of a plain sequential read: 8 rows at once in blocks of 1024 elements 0.81, 4 rows
 * 0.77; 4 rows in blocks of 16384 0.80, and 0.97 with lines asked for 2048 bytes ahead, across the
 * change of rows. Longer blocks gain nothing and cost stack (two blocks are kept there). */
enum { GROUP = 4, BLOCK = 16384, AHEAD_BYTES = 2048 };

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)0)
#endif

#define REAL float
#define BITS uint32_t
#define EXPONENT UINT32_C(0x7f800000)
#define NAME(x) FGC_AT_LEVEL(x##_float)
#include "combine.inc"
#undef REAL
#undef BITS
#undef EXPONENT
#undef NAME

#define REAL double
#define BITS uint64_t
#define EXPONENT UINT64_C(0x7ff0000000000000)
#define NAME(x) FGC_AT_LEVEL(x##_double)
#include "combine.inc"
