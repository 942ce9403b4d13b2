/* SPDX-License-Identifier: MIT
 *
 * The end of a process in which NVRTC still compiles for a call that has given up: the destructors of NVRTC's library
 * would pull the ground from under that thread. So exit() waits for it, though not for ever.
 *
 * It is the process that ends, and not a context: this is state of the process.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cuda/internal.h"

enum { PATIENCE_MS = 5000, RETRY_MS = 2 };

/* Threads that nobody waits for (the low half), and the process whose they are: a fork() takes none of them along. One
 * number, so that the first two of a process cannot take each other for what was before the fork(). */
static _Atomic uint64_t running;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t none_here(void)
{
    return (uint64_t)(uint32_t)getpid() << 32;
}

static bool waited_for(void)
{
    uint64_t now = atomic_load(&running);
    return now >> 32 == none_here() >> 32 && now > none_here();
}

/* Runs before what NVRTC's library, which was loaded earlier, has for the end. */
static void wait_for_them(void)
{
    const struct timespec retry = {0, RETRY_MS * 1000000L};
    int64_t end = stitch__now_ns() + PATIENCE_MS * INT64_C(1000000);

    while (waited_for() && stitch__now_ns() < end)
        nanosleep(&retry, NULL);
}

static void at_exit(void)
{
    (void)atexit(wait_for_them);
}

void stitch__leaving_waits(bool more)
{
    uint64_t none = none_here(), before = atomic_load(&running), after;

    if (more)
        (void)pthread_once(&once, at_exit);
    do {
        after = before >> 32 == none >> 32 ? before : none;
        after = more ? after + 1 : after > none ? after - 1 : none;
    } while (!atomic_compare_exchange_weak(&running, &before, after));
}
