/* Combinations of rows that nobody has checked: whether each is aligned, and lies apart from the output,
 * is looked at first, by addresses alone.
 *
 * Rows may be given as a list of NumPy's arrays. C then reads each array object itself, as fgc_array of
 * fastgc.h has it: type, address, dtype, shape and flags. Why so:
 *
 * - To ask Python takes longer than the arithmetic. 68 vectors of 100 doubles: 2.3 us by this, 16 us by
 *   a buffer for each (cffi's from_buffer), which is what other interpreters get.
 * - NumPy's C API would give the same fields of the same struct by macros (PyArray_DATA is one), but
 *   needs NumPy's headers where fastgc is built, and a module that is imported by them; the extension is
 *   one of cffi's with Python's limited API, which hides objects, so that one wheel is for all versions
 *   of both.
 * - The layout is a promise: the struct is part of NumPy's binary interface, the same in 1.x and 2.x.
 *   Still nothing rests on it unseen: fastgc/kernels/c/combine.py reads an array of known address, shape,
 *   strides, dtype, base and flags by it when it is imported, and what differs makes it take the buffers.
 */
#include <stdlib.h>
#include <string.h>

#include "fastgc.h"

/* Where rows begin that share memory with an output. As unsigned numbers: those before the first wrap to
 * large ones. */
typedef struct {
    uintptr_t lowest, extent;
    size_t size; /* of a real, and so what rows are aligned to */
} memory;

static memory memory_of(const fgc_apart *plan, size_t size, uintptr_t out, size_t out_size)
{
    const size_t row = (size_t)plan->in_len * size * (plan->mode == FGC_REAL_PART ? 2 : 1);
    const size_t made = (size_t)plan->out_len * out_size * (plan->mode == FGC_EXPAND ? 2 : 1);
    return (memory){out - row + 1, row + made - 1, size};
}

static int misplaced(const memory *it, uintptr_t row)
{
    return (row - it->lowest < it->extent) | (row % it->size != 0);
}

enum { CONTIGUOUS = 1 }; /* of an array's flags, as in C */

/* Where this object has its numbers, if it is a vector as the first one is; else nowhere that is right. */
static uintptr_t data_of(const fgc_array *a, const fgc_array *first, const memory *it)
{
    const int like = a->type == first->type && a->dtype == first->dtype && a->dimensions == 1 &&
                     first->dimensions == 1 && a->shape[0] == first->shape[0] &&
                     (a->flags & CONTIGUOUS);
    return like ? (uintptr_t)a->data : it->lowest;
}

enum { FEW = 96 }; /* rows whose addresses and coefficients lie on the stack */

/* Rows and coefficients but those that are zero; how many, or -1 if one is misplaced, read or not. */
static int64_t choose(const fgc_apart *plan, const void *given, const memory *it, int64_t count,
                      uintptr_t *rows, double *chosen)
{
    const int64_t step = plan->mode == FGC_REAL ? 1 : 2;
    const double *const coef = plan->coef;
    const uintptr_t *const table = given;
    int64_t used = 0;
    int wrong = 0;
    for (int64_t r = 0; r < count; r++) {
        uintptr_t row = plan->stride ? (uintptr_t)given + (uintptr_t)(r * plan->stride) : table[r];
        if (plan->objects)
            row = data_of((const fgc_array *)row, (const fgc_array *)table[0], it);
        const double x = coef[step * r], y = coef[step * r + step - 1];
        wrong |= misplaced(it, row);
        rows[used] = row;
        chosen[step * used] = x;
        chosen[step * used + step - 1] = y;
        used += x != 0 || y != 0;
    }
    return wrong ? -1 : used;
}

#define COMBINE_APART(kind, read, real)                                                            \
    fgc_status fgc_combine_apart_##kind(const fgc_apart *plan, const void *rows, real *out,        \
                                        int64_t count)                                             \
    {                                                                                              \
        const memory it = memory_of(plan, sizeof(read), (uintptr_t)out, sizeof(real));             \
        uintptr_t few_rows[FEW + 1], *chosen = few_rows; /* one more is written than is used */    \
        double few[2 * (FEW + 1)], *coef = few;                                                    \
        char *work = NULL;                                                                         \
        if (count > FEW) {                                                                         \
            work = malloc((size_t)(count + 1) * (2 * sizeof *coef + sizeof *chosen));              \
            if (!work)                                                                             \
                return FGC_NO_MEMORY;                                                              \
            coef = (double *)work;                                                                 \
            chosen = (uintptr_t *)(coef + 2 * (count + 1));                                        \
        }                                                                                          \
        const int64_t used = choose(plan, rows, &it, count, chosen, coef);                         \
        fgc_status status = FGC_MISPLACED;                                                         \
        if (used >= 0) {                                                                           \
            const int bad = fgc_combine_##kind(plan->mode, chosen, coef, used, plan->extent,       \
                                               plan->in_len, plan->out_len, plan->flags, out);     \
            status = bad ? FGC_NOT_FINITE : FGC_OK;                                                \
        }                                                                                          \
        free(work);                                                                                \
        return status;                                                                             \
    }
FGC_KINDS(COMBINE_APART)

#define ADD_APART(kind, read, real)                                                                \
    fgc_status fgc_add_apart_##kind(const fgc_apart *plan, const double *weight, double *energy,   \
                                    real *out, const void *row, int64_t at, int flags)             \
    {                                                                                              \
        const memory it = memory_of(plan, sizeof(read), (uintptr_t)out, sizeof(real));             \
        const uintptr_t one = (uintptr_t)row;                                                      \
        if (misplaced(&it, one))                                                                   \
            return FGC_MISPLACED;                                                                  \
        *energy += fgc_encode_##kind(plan->mode, &one,                                             \
                                     plan->coef + at * (plan->mode == FGC_REAL ? 1 : 2),           \
                                     weight + at, 1, plan->extent, plan->in_len, plan->out_len,    \
                                     flags, out);                                                  \
        return FGC_OK;                                                                             \
    }
FGC_KINDS(ADD_APART)

/* The vector for the survivors that an array object holds, of which a copy is made: others may write to it
 * meanwhile. */
static fgc_status bound_vector(const fgc_bound *plan, const fgc_array *a, int64_t *count)
{
    const int64_t n = plan->code->workers;
    if (a->type != plan->type || a->dtype != plan->dtype || a->dimensions != 1)
        return FGC_MISPLACED;
    const int64_t f = a->shape[0], fewer = f < n - f ? f : n - f;
    const int contiguous = a->flags & CONTIGUOUS;
    if (!contiguous || (uintptr_t)a->data % sizeof f != 0 || f > n ||
        fewer >= plan->factors)
        return FGC_MISPLACED;
    memcpy(plan->survivors, a->data, (size_t)f * sizeof f);
    *count = f;
    int64_t where;
    return fgc_decoding_vector(plan->code, plan->survivors, plan->vector, &where, plan->work,
                               plan->longest, plan->method, f);
}

#define DECODE_BOUND(kind, read, real)                                                             \
    fgc_status fgc_decode_bound_##kind(const fgc_bound *plan, real *out, uintptr_t survivors)      \
    {                                                                                              \
        int64_t f;                                                                                 \
        const fgc_status status = bound_vector(plan, (const fgc_array *)survivors, &f);            \
        if (status != FGC_OK)                                                                      \
            return status;                                                                         \
        return fgc_combine_chosen_##kind(plan->mode, plan->table, plan->survivors, plan->vector,   \
                                         plan->extent, plan->in_len, plan->out_len, plan->flags,   \
                                         out, f);                                                  \
    }
FGC_KINDS(DECODE_BOUND)
