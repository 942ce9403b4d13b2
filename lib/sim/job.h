/* SPDX-License-Identifier: MIT
 *
 * One launch in progress: what its host threads share.
 */
#ifndef STITCH_LIB_SIM_JOB_H
#define STITCH_LIB_SIM_JOB_H

#include <pthread.h>

#include "sim/exec.h"

typedef struct stitch__kept_report {
    stitch__sim_report r;
    struct stitch__kept_report *next; /* in the hash bucket */
} stitch__kept_report;

typedef struct stitch__job {
    const stitch__sim_launch *launch;
    const stitch__sim_function *f;
    const stitch_context *ctx;
    uint64_t number;             /* tells launches in progress apart */
    stitch__sim_alloc **touched; /* those with a race record of this launch */
    size_t touched_count, touched_cap;
    pthread_mutex_t lock;
    uint64_t *order;      /* sampled blocks (clusters, as the number of their first block); NULL: all, in order */
    uint64_t units, next; /* how many clusters to run; the next one (atomic) */
    uint32_t cluster_blocks;
    bool talks, stop, in_order;
    uint32_t seq;
    uint32_t *released; /* by seq: block time of the last release to other blocks */
    size_t released_cap;
    uint64_t workspace; /* grid barrier: device address of one word */
    stitch__kept_report *reports[256];
    size_t report_count, report_limit;
    uint64_t dropped;
    stitch__sim_fault fault;
    stitch__buf printed;
    int rc;
    stitch_error *err;
    stitch__sim_result *out;
} stitch__job;

int stitch__counters_merge(stitch__job *j, const stitch__exec *x, uint32_t threads);
void stitch__job_block_id(const stitch__job *j, uint32_t seq, uint32_t id[3]);
void stitch__job_release(stitch__exec *x, uint32_t time);
uint32_t stitch__job_released(const stitch__exec *x, uint32_t seq);

#endif
