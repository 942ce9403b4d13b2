/* SPDX-License-Identifier: MIT
 *
 * A CUPTI without a GPU for tests: activity records are what a test adds, and every function can be made to fail. Like
 * the real one it lays out records that are longer than what the library reads, and knows one subscriber.
 */
#ifndef STITCH_TESTS_FAKE_CUPTI_H
#define STITCH_TESTS_FAKE_CUPTI_H

#include "cuda/cupti.h"

enum fake_cupti_function {
#define X(need, member, symbol, params) FAKE_##member,
#include "cuda/cupti_functions.def"
#undef X
    FAKE_CUPTI_FUNCTIONS
};

typedef struct fake_cupti {
    uint32_t version;
    int fail[FAKE_CUPTI_FUNCTIONS]; /* what a function returns instead of doing its work; 0: it works */
    int calls[FAKE_CUPTI_FUNCTIONS];
    int fail_kind;      /* ActivityEnable fails for this kind alone; 0: for every one */
    const char *holder; /* name of another subscriber; NULL: there is none */
    bool unnamed;       /* no cuptiSubscribe_v2 */
    bool subscribed;
    bool lasting;              /* no cuptiFinalize */
    int unloads;               /* by it, with nothing on and nobody subscribed */
    int enabled[64];           /* by kind */
    uint64_t now;              /* the clock; every look at it adds 10 */
    size_t dropped;            /* returned once */
    size_t cut;                /* bytes that are missing at the end of every buffer */
    size_t records_per_buffer; /* 0: as many as fit */
    bool null_names;           /* calls have no names */
    int bad_step; /* 1: the iterator leaves the buffer, 2: it stays where it is, 3: it returns odd addresses */
    stitch__cupti_request_fn request;
    stitch__cupti_complete_fn complete;
    int refused; /* requests that got no buffer */
} fake_cupti;

extern fake_cupti fake_cupti_state;

/* Everything as at the start. Buffers that a failed flush left behind are returned first. */
void fake_cupti_reset(void);
void *fake_cupti_get_proc(const char *symbol, void *userdata);
/* The record waits until the next flush, if its kind is on. */
void fake_cupti_add(const void *record);
stitch__cupti_kernel fake_cupti_kernel(const char *name, uint64_t start, uint64_t end, uint32_t correlation);
void fake_cupti_add_kernel(const char *name, uint64_t start, uint64_t end, uint32_t correlation);
void fake_cupti_add_call(int kind, uint32_t callback, uint64_t start, uint64_t end, uint32_t thread,
                         uint32_t correlation);
/* What waits, into buffers and back. Any thread. */
void fake_cupti_deliver(void);

#endif
