/* Threads that share the pieces of one job, and the time: see pool.c. */
#ifndef FASTGC_POOL_H
#define FASTGC_POOL_H

#include "fastgc.h"

/* Do pieces from .. to-1 of a job. Any thread may call it until the job is over. It must not start a
 * job. */
typedef void (*fgc_job)(void *data, int from, int to);

/* The most pieces of a job. */
enum { FGC_PIECES = 1024 };

/* Do pieces 0 .. pieces-1, each once, and return when all are done. A caller that works alone does them in
 * one call. `work`: about how many nanoseconds they take one thread. */
void fgc_pool_run(fgc_job job, void *data, int pieces, int64_t work);

/* Do fgc_add_apart for a row that is well placed; return its sum of squares times `weight`. */
#define FGC_ADD_ROW(kind, read, real)                                                              \
    double fgc_add_row_##kind(const fgc_apart *plan, const double *coef, double weight,            \
                              const void *row, int flags, real *out);
FGC_KINDS(FGC_ADD_ROW)
#undef FGC_ADD_ROW

/* Return the nanoseconds since some moment, which is the same for all processes of this machine. */
int64_t fgc_now(void);

#endif
