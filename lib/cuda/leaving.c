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

static atomic_int running; /* threads that nobody waits for */
static atomic_int process; /* whose they are: a fork() takes none of them along */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Runs before what NVRTC's library, which was loaded earlier, has for the end. */
static void wait_for_them(void)
{
    const struct timespec retry = {0, RETRY_MS * 1000000L};
    int64_t end = stitch__now_ns() + PATIENCE_MS * INT64_C(1000000);

    while (atomic_load(&running) > 0 && atomic_load(&process) == getpid() && stitch__now_ns() < end)
        nanosleep(&retry, NULL);
}

static void at_exit(void)
{
    (void)atexit(wait_for_them);
}

void stitch__leaving_waits(bool more)
{
    if (more) {
        (void)pthread_once(&once, at_exit);
        if (atomic_exchange(&process, getpid()) != getpid())
            atomic_store(&running, 0);
    }
    atomic_fetch_add(&running, more ? 1 : -1);
}
