/* SPDX-License-Identifier: MIT
 *
 * stitch-worker: libstitch starts it to run a program that is not trusted. It has no use of its own.
 */
#include <stdio.h>

#include "worker/worker.h"

int main(void)
{
    int rc = stitch__worker_main(NULL);
    if (rc)
        fprintf(stderr, "stitch-worker: libstitch starts this program when it needs it; there is nothing to do here\n");
    return rc;
}
