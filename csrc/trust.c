/* What trust is told of the messages that a gradient is decoded from. */
#include <math.h>
#include <string.h>

#include "vector.h"

void FGC_AT_LEVEL(fgc_trust_sums)(const double *vector, int complex, const int64_t *numbers,
                                  int64_t numbers_len, const double *norms, const double *energies,
                                  double least, const double *row_norms, int64_t row_norms_len,
                                  const int64_t *copies, double *work, double *told)
{
    double terms = 0, squares = 0, spread = 0, aligned = 0, inside = 0, scatter = 0, sizes = 0;
    if (copies)
        memset(work, 0, 2 * (size_t)row_norms_len * sizeof *work);
    for (int64_t i = 0; i < numbers_len; i++) {
        const scalar a = number_at(vector, i, complex);
        if (a.re == 0 && a.im == 0)
            continue;
        const double row = row_norms[numbers[i]], norm = norms ? norms[i] : row;
        const double energy = energies ? energies[i] + least : NAN, square = a.re * a.re + a.im * a.im;
        terms++;
        squares += square;
        aligned += sqrt(square * norm);
        if (copies) {
            work[2 * copies[numbers[i]]] += sqrt(square * norm);
            work[2 * copies[numbers[i]] + 1] += sqrt(square * energy);
        } else {
            spread += square * norm;
            inside += square * energy;
        }
        if (row > 0 && row < INFINITY) {
            scatter += (isnan(energy) ? norm : energy) / row;
            sizes++;
        }
    }
    for (int64_t m = 0; copies && m < row_norms_len; m++) {
        spread += work[2 * m] * work[2 * m];
        inside += work[2 * m + 1] * work[2 * m + 1];
    }
    const double all[] = {terms, squares, spread, aligned, inside, sizes ? scatter / sizes : INFINITY};
    memcpy(told, all, sizeof all);
}
