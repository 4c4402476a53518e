/* The SIMD level in use, chosen when a kernel is first asked for, and the public functions that lead
 * to its kernels. */
#include <stdatomic.h>
#include <string.h>

#include "levels.h"

#ifdef FGC_X86_DISPATCH
#include <cpuid.h>
#endif

/* What the system saves of registers when it changes threads, by bits of XCR0: those of AVX, and of
 * AVX-512. */
enum { YMM = 0x06, ZMM = 0xe6 };

/* What kernels of a level need, by bits as in <cpuid.h>: of XCR0, and of leaves 1 and 7 of cpuid. */
typedef struct {
    unsigned saved, basic, extended;
} features;

/* Best last. */
static const struct {
    const fgc_level *table;
    features needed;
} levels[] = {
    {&fgc_level_baseline, {0, 0, 0}},
#ifdef FGC_HAVE_AVX2
    {&fgc_level_avx2, {YMM, bit_FMA | bit_F16C, bit_AVX2}},
#endif
#ifdef FGC_HAVE_AVX512
    {&fgc_level_avx512,
     {ZMM, bit_FMA | bit_F16C, bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL}},
#endif
};
enum { LEVELS = sizeof levels / sizeof *levels };

/* Of this processor. Not by __builtin_cpu_supports, which asks a library of the compiler: some links
 * bring one that finds nothing, and all would run at the baseline. */
static features found(void)
{
    features f = {0, 0, 0};
#ifdef FGC_X86_DISPATCH
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE)) { /* else there is no XCR0 */
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
    return !(needed.saved & ~f.saved) && !(needed.basic & ~f.basic) &&
           !(needed.extended & ~f.extended);
}

/* Of two threads that both get to level() first, each stores the same pointer. */
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

/* What public functions are called with, for who makes calls of it: "type name(parameters)". */
const char *const fgc_declared[] = {
#define FGC_KERNEL(type, name, parameters, arguments) #type " " #name #parameters,
#define FGC_SUM(name, kind, real, parameters, vectors, numbers, cost) "double " #name "_" #kind #parameters,
#include "kernels.def"
    NULL,
};

/* How a function of this type ends. */
#define RETURN_void
#define RETURN_int return
#define RETURN_double return
#define RETURN_fgc_status return

#define FGC_KERNEL(type, name, parameters, arguments)                                              \
    type fgc_##name parameters                                                                     \
    {                                                                                              \
        RETURN_##type level()->name arguments;                                                     \
    }
#include "kernels.def"
