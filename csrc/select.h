/* The f-th earliest of many times, in round after round. */
#ifndef FASTGC_SELECT_H
#define FASTGC_SELECT_H

#include "vector.h"

/* The earliest and the latest time that was found in recent rounds: in the last complete epoch of EPOCH rounds,
 * and in the present one. Rounds are alike: few times of the next round lie between these, and the one sought is
 * nearly always among them. All zeros are a window, too, of which everything comes after. */
typedef struct {
    double low, high, least, most;
    int64_t rounds; /* in the present epoch */
} window;

/* Among at most FEW keys a rank is found by comparing each with each: rounds of 16 and of 80 workers then take
 * three quarters of the time. */
enum { EPOCH = 32, FEW = 32 };

/* Return the key of rank `need` > 0 among at most FEW: the least key such that `need` keys are not larger. Keys
 * beyond `count`, to the end of a vector, are NaN. */
static double select_few(const double *key, int64_t count, int64_t need)
{
    vector found = spread(INFINITY);
    for (int64_t i = 0; i < count; i += LANES) {
        const vector x = load(key + i);
        lanes upto = {0};
        FGC_UNROLL
        for (int64_t j = 0; j < count; j++)
            upto -= spread(key[j]) <= x;
        found = smaller(found, pick(upto >= need, x, spread(INFINITY)));
    }
    return least_of_lanes(found);
}

/* Set the keys from `count` to the end of a vector to NaN. */
static void end_keys(double *key, int64_t count)
{
    for (int64_t j = count; j < padded_size(count); j++)
        key[j] = NAN;
}

/* Return the key of rank `need` > 0, INFINITY if there are fewer keys. Quickselect (Hoare 1961) with a first guess:
 * keys from `low` to `high` are kept, at first those inside the window, then those that equal the middle one. If
 * the one sought is not among them, all on its side of them are kept instead. `key` and both arrays of work space
 * end with whole vectors; only work space is overwritten, and `key` may be work[0]. */
static double select_rank(const double *key, int64_t count, int64_t need, window *w, double *const work[2])
{
    if (count <= FEW)
        return select_few(key, count, need);
    double low = w->low, high = w->high, found = INFINITY;
    while (need <= count && count > FEW) {
        double *const near = work[key != work[1]];
        lanes earlier = {0};
        int64_t inside = 0;
        for (int64_t j = 0; j < count; j += LANES) {
            const vector x = load(key + j);
            earlier -= x < low;
            inside += keep(near + inside, (x >= low) & (x <= high), x);
        }
        const int64_t before = sum_of_counts(earlier);
        if (need <= before) {
            high = nextafter(low, -INFINITY);
            low = -INFINITY;
        } else if (need > before + inside) {
            low = nextafter(high, INFINITY);
            high = INFINITY;
        } else if (low == high) {
            found = low;
            break;
        } else {
            end_keys(near, inside);
            key = near;
            count = inside;
            need -= before;
            low = high = key[count / 2];
        }
    }
    if (count <= FEW)
        found = select_few(key, count, need);
    w->least = found < w->least ? found : w->least;
    w->most = found > w->most ? found : w->most;
    if (++w->rounds == EPOCH)
        *w = (window){w->least, w->most, INFINITY, -INFINITY, 0};
    return found;
}

#endif
