/* The SIMD level in use, chosen when a kernel is first asked for, and the public functions that lead
 * to its kernels. */
#include <stdatomic.h>
#include <string.h>

#include "levels.h"

/* Best last. */
static const fgc_level *const levels[] = {
    &fgc_level_baseline,
#ifdef FGC_HAVE_AVX2
    &fgc_level_avx2,
#endif
#ifdef FGC_HAVE_AVX512
    &fgc_level_avx512,
#endif
};

static int supported(const char *name)
{
#if defined(FGC_HAVE_AVX2) || defined(FGC_HAVE_AVX512)
    __builtin_cpu_init();
#ifdef FGC_HAVE_F16C
    if (!strcmp(name, "avx2") && !__builtin_cpu_supports("f16c"))
        return 0;
#endif
    if (!strcmp(name, "avx2"))
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!strcmp(name, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("fma");
#endif
    return !strcmp(name, "baseline");
}

/* Of two threads that both get to level() first, each stores the same pointer. */
static _Atomic(const fgc_level *) active;

static const fgc_level *level(void)
{
    const fgc_level *best = atomic_load_explicit(&active, memory_order_relaxed);
    if (!best) {
        best = levels[0];
        for (size_t i = 1; i < sizeof levels / sizeof *levels; i++)
            if (supported(levels[i]->name))
                best = levels[i];
        atomic_store_explicit(&active, best, memory_order_relaxed);
    }
    return best;
}

const char *fgc_simd(void) { return level()->name; }

int fgc_simd_select(const char *name)
{
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcmp(levels[i]->name, name) && supported(name)) {
            atomic_store_explicit(&active, levels[i], memory_order_relaxed);
            return 1;
        }
    return 0;
}

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
