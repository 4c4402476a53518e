/* The table of one SIMD level. Like the kernels, this file is compiled once for each level. */
#include "levels.h"

#define STRING2(level) #level
#define STRING(level) STRING2(level)

const fgc_level FGC_AT_LEVEL(fgc_level) = {
    .name = STRING(FGC_LEVEL),
#define FGC_KERNEL(type, name, parameters, arguments) .name = FGC_AT_LEVEL(fgc_##name),
#include "kernels.def"
};
