/* The time. */
#ifndef FASTGC_CLOCK_H
#define FASTGC_CLOCK_H

#include <stdint.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <time.h>
#endif

/* Return the nanoseconds since some moment, which is the same for all processes of this machine. */
static inline int64_t now(void)
{
#ifdef _WIN32
    LARGE_INTEGER ticks, each_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&each_second);
    return (int64_t)(1e9 * (double)ticks.QuadPart / (double)each_second.QuadPart);
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
#endif
}

#endif
