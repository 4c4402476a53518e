/* The SIMD level in use, chosen when a kernel is first called, and the public functions, which call its
 * kernels. Like the kernels, this file is also compiled once for each level: then it is the level's table. */
#include <stdatomic.h>
#include <string.h>

#include "levels.h"

#ifdef FGC_LEVEL
#define STRING2(level) #level
#define STRING(level) STRING2(level)

const fgc_level FGC_AT_LEVEL(fgc_level) = {
    .name = STRING(FGC_LEVEL),
#define FGC_KERNEL(type, name, parameters, arguments) .name = FGC_AT_LEVEL(fgc_##name),
#include "kernels.def"
};
#else

#ifdef FGC_X86_DISPATCH
#include <cpuid.h>
#endif

/* Bits of XCR0: the system saves the registers of AVX, or AVX-512, when it switches threads. */
enum { YMM = 0x06, ZMM = 0xe6 };

/* Features as bits of XCR0, and of leaves 1 and 7 of cpuid, as in <cpuid.h>. */
typedef struct {
    unsigned saved, basic, extended;
} features;

/* The levels of this build and the features that they need, best last. */
static const struct {
    const fgc_level *table;
    features needed;
} levels[] = {
    {&fgc_level_baseline, {0, 0, 0}},
#ifdef FGC_HAVE_AVX2
    {&fgc_level_avx2, {YMM, bit_FMA | bit_F16C, bit_AVX2}},
#endif
#ifdef FGC_HAVE_AVX512
    {&fgc_level_avx512, {ZMM, bit_FMA | bit_F16C, bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL}},
#endif
};
enum { LEVELS = sizeof levels / sizeof *levels };

/* Return the features of this processor. Rejected: __builtin_cpu_supports asks a library of the compiler.
 * Some links bring one that finds nothing, and everything would run at the baseline. */
static features found(void)
{
    features f = {0, 0, 0};
#ifdef FGC_X86_DISPATCH
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE)) { /* without OSXSAVE there is no XCR0 */
        f.basic = c;
        __asm__("xgetbv" : "=a"(f.saved), "=d"(d) : "c"(0));
        if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
            f.extended = b;
    }
#endif
    return f;
}

static int suffices(features f, features needed)
{
    return !(needed.saved & ~f.saved) && !(needed.basic & ~f.basic) && !(needed.extended & ~f.extended);
}

/* If two threads both are the first in level(), each stores the same pointer. */
static _Atomic(const fgc_level *) active;

static const fgc_level *level(void)
{
    const fgc_level *best = atomic_load_explicit(&active, memory_order_relaxed);
    if (!best) {
        const features f = found();
        for (int i = 0; i < LEVELS; i++)
            if (suffices(f, levels[i].needed))
                best = levels[i].table;
        atomic_store_explicit(&active, best, memory_order_relaxed);
    }
    return best;
}

const char *fgc_simd(void) { return level()->name; }

int fgc_simd_select(const char *name)
{
    for (int i = 0; i < LEVELS; i++)
        if (!strcmp(levels[i].table->name, name) && suffices(found(), levels[i].needed)) {
            atomic_store_explicit(&active, levels[i].table, memory_order_relaxed);
            return 1;
        }
    return 0;
}

/* The declarations of public functions as text, from which Python makes its calls. */
const char *const fgc_declared[] = {
#define FGC_KERNEL(type, name, parameters, arguments) #type " " #name #parameters,
#define FGC_SUM(name, kind, real, parameters, vectors, numbers, cost) "double " #name "_" #kind #parameters,
#include "kernels.def"
    NULL,
};

/* How a public function of each type ends. */
#define RETURN_void
#define RETURN_int return
#define RETURN_int64_t return
#define RETURN_double return
#define RETURN_fgc_status return

/* clang-format off */
#define FGC_KERNEL(type, name, parameters, arguments)                                              \
    type fgc_##name parameters                                                                     \
    {                                                                                              \
        RETURN_##type level()->name arguments;                                                     \
    }
/* clang-format on */
#include "kernels.def"
#endif
