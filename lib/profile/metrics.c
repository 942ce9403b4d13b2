/* SPDX-License-Identifier: MIT
 *
 * The table of metrics (metrics.def): names, units, what collects them.
 */
#include "profile/facts.h"

static const stitch__metric_info infos[STITCH__METRICS] = {
#define X(name, key, unit, set, cupti) {key, unit, STITCH__METRIC_##set, cupti},
#include "profile/metrics.def"
#undef X
};

const stitch__metric_info *stitch__metric_info_of(int metric)
{
    return metric >= 0 && metric < STITCH__METRICS ? &infos[metric] : NULL;
}

bool stitch__metric_name_ok(const char *name)
{
    size_t len = name ? strlen(name) : 0;
    return len > 0 && len <= STITCH__METRIC_NAME &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.") == len;
}

int stitch__metric_find(const char *key)
{
    for (int i = 0; key && i < STITCH__METRICS; i++) {
        if (strcmp(infos[i].key, key) == 0)
            return i;
    }
    return -1;
}
