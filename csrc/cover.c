/* Decoding vectors of messages that are each the plain sum over one cell of the partitions, or over one
 * interval of them. */
#include <string.h>

#include "levels.h"

fgc_status fgc_cells_vector(const fgc_cells *of, const int64_t *survivors, double *out, void *work,
                            int64_t f)
{
    unsigned char *const here = work, *const came = here + of->messages;
    int64_t weight = 0;
    memset(work, 0, (size_t)(of->messages + of->cells));
    for (int64_t l = 0; l < f; l++) {
        const int64_t i = survivors[l];
        if ((uint64_t)i >= (uint64_t)of->messages)
            return FGC_OUT_OF_RANGE;
        if (here[i])
            return FGC_DUPLICATE;
        here[i] = 1;
        const int64_t cell = of->cell[i];
        const int first = !came[cell];
        came[cell] = 1;
        weight += first ? of->weight[cell] : 0;
        out[l] = first;
    }
    if (weight < of->need)
        return FGC_TOO_FEW;
    if (of->whole > 0 && of->whole != (double)weight)
        for (int64_t l = 0; l < f; l++)
            out[l] *= of->whole / (double)weight;
    return FGC_OK;
}

/* Find the fewest intervals that lead from the first point to the last, forwards or (`back`) both ways, by
 * breadth-first search. via[p] - 1 is the edge by which point p is reached; via[p] is 0 if it is not. */
static void find_path(const fgc_tiling *of, const int64_t *place, int back, int64_t *via,
                      int64_t *queue)
{
    const int64_t last = of->points - 1;
    int64_t ahead = 0, end = 1;
    memset(via, 0, (size_t)of->points * sizeof *via);
    queue[0] = 0;
    while (ahead < end && !via[last]) {
        const int64_t here = queue[ahead++];
        for (int64_t e = of->first[here]; e < of->first[here + 1]; e++) {
            const int64_t there = of->other[e];
            if (!place[of->message[e]] || via[there] || !there || (there < here && !back))
                continue;
            via[there] = e + 1;
            queue[end++] = there;
        }
    }
}

fgc_status fgc_tiling_vector(const fgc_tiling *of, const int64_t *survivors, double *out,
                             void *work, int64_t f)
{
    int64_t *const place = work, *const via = place + of->messages, *const queue = via + of->points;
    const int64_t last = of->points - 1;
    memset(place, 0, (size_t)of->messages * sizeof *place);
    for (int64_t l = 0; l < f; l++) {
        const int64_t i = survivors[l];
        if ((uint64_t)i >= (uint64_t)of->messages)
            return FGC_OUT_OF_RANGE;
        if (place[i])
            return FGC_DUPLICATE;
        place[i] = l + 1;
        out[l] = 0;
    }
    for (int back = 0; back < 2; back++) {
        find_path(of, place, back, via, queue);
        if (!via[last])
            continue;
        for (int64_t point = last; point;) {
            const int64_t e = via[point] - 1, from = of->point[e];
            out[place[of->message[e]] - 1] = from < point ? 1 : -1;
            point = from;
        }
        return FGC_OK;
    }
    return FGC_TOO_FEW;
}
