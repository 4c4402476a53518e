/* Messages of a round as they come. */
#include <math.h>

#include "fastgc.h"
#include "tally.h"

/* Return a row's sum of squares, and write its projections if any are asked for. */
#define READ(kind, read, real)                                                                               \
    static double read_##kind(const fgc_arrivals *a, const void *row, int64_t at)                            \
    {                                                                                                        \
        if (!a->left)                                                                                        \
            return fgc_square_sum_##kind(row, a->length);                                                    \
        double *const out = a->values + at * FGC_SIDE * FGC_SIDE * (1 + a->paired);                          \
        return fgc_project_##kind(row, a->length, a->left, a->right, a->paired, out);                        \
    }
FGC_KINDS(READ)

static double norm_squared(const fgc_arrivals *a, const void *row, int64_t at)
{
    switch (a->kind) {
    case FGC_FLOAT:
        return read_float(a, row, at);
    case FGC_HALF:
        return read_half(a, row, at);
    case FGC_BFLOAT:
        return read_bfloat(a, row, at);
    default:
        return read_double(a, row, at);
    }
}

/* Return whether all elements of a row of doubles are finite; 0 for other kinds of rows. */
static int finite_doubles(const fgc_arrivals *a, const void *row)
{
    const double *const x = row;
    if (a->kind != FGC_DOUBLE)
        return 0;
    for (int64_t i = 0; i < a->length; i++)
        if (!isfinite(x[i]))
            return 0;
    return 1;
}

fgc_status fgc_arrive(const fgc_arrivals *a, int64_t number, const void *row, double energy)
{
    if (number < 0 || number >= a->messages)
        return FGC_OUT_OF_RANGE;
    if (a->heard[number])
        return FGC_DUPLICATE;
    const double square = a->check ? norm_squared(a, row, a->state[0]) : NAN;
    if (a->check && !(square < INFINITY) && !finite_doubles(a, row)) /* squares may overflow */
        return FGC_NOT_FINITE;
    const int64_t count = a->state[0]++;
    a->numbers[count] = number;
    a->squares[count] = square;
    a->energies[count] = energy >= 0 ? energy : NAN;
    a->addresses[count] = (uintptr_t)row;
    a->heard[number] = 1;
    return fgc_count(a->block[number], a->weight, a->lacking, a->state + 1) ? FGC_OK : FGC_TOO_FEW;
}
