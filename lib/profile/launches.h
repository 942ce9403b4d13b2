/* SPDX-License-Identifier: MIT
 *
 * The launches of a run, in the order in which they were made, and of which of them hardware counters are looked at:
 * each costs time, and those of the same kernel with the same grid say the same after a few.
 */
#ifndef STITCH_LIB_PROFILE_LAUNCHES_H
#define STITCH_LIB_PROFILE_LAUNCHES_H

#include "profile/facts.h"
#include "profile/profile.h"

typedef struct stitch__launch {
    const stitch__event *event;
    size_t number; /* in the order of launches, which is the order of the counters */
    size_t given;  /* kernels, copies and fills that the device was given until then, this one included */
    size_t row;    /* index of its kernel's facts; SIZE_MAX: it has none */
    double weight; /* launches that its counters stand for; 0: they are not looked at */
} stitch__launch;

typedef struct stitch__launches {
    stitch__launch *list; /* by number; stitch_free() */
    size_t count;
    size_t counted; /* up to the last one that is looked at */
    size_t wanted;  /* that are looked at */
    size_t of;      /* that have a row */
} stitch__launches;

/* Of a run's timeline, which is finished and stays. Events belong to the facts' kernels by symbol and step. 0 or
 * STITCH_E_NOMEM. */
int stitch__launches_of(const stitch__facts *f, const stitch__timeline *t, stitch__launches *out);

#endif
