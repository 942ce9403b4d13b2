/* SPDX-License-Identifier: MIT
 *
 * CUPTI serves one user a process at a time. Whoever collects something (a trace, counters, samples) claims it among
 * the library's own users first, then subscribes, which keeps it from tools of others and them from it.
 */
#ifndef STITCH_LIB_PROFILE_EXCLUSIVE_H
#define STITCH_LIB_PROFILE_EXCLUSIVE_H

#include "cuda/cupti.h"

/* `what` is a string constant for the message that another claim gets: "a trace". STITCH_E_BUSY. Any thread. */
int stitch__exclusive_claim(const stitch_context *ctx, const char *what, stitch_error **err);
/* By whoever claimed it. */
void stitch__exclusive_release(void);
/* By whoever claimed it, in place of release(): the device works on something that it may never get done with, and what
 * would end the use of CUPTI would wait for it. CUPTI stays as it is and claimed for as long as the process lives. */
void stitch__exclusive_leave(const stitch_context *ctx);
bool stitch__exclusive_left(void);
/* STITCH_E_BUSY says who holds CUPTI where that is known. On failure *subscriber is NULL. */
int stitch__exclusive_subscribe(const stitch_context *ctx, const stitch__cupti *cupti, void **subscriber,
                                stitch_error **err);

/* A graph was traced in this process. From then on CUPTI (13.0, on an H200) gives PC samples to no kernel or, of
 * modules that are loaded later, to wrong ones. */
void stitch__exclusive_note_graph(void);
bool stitch__exclusive_graph_traced(void);

#endif
