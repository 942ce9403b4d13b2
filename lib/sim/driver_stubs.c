/* SPDX-License-Identifier: MIT
 *
 * The simulated driver where the build leaves it out: it has no function.
 */
#include "sim/driver.h"

void *stitch__sim_get_proc(const char *symbol, void *userdata)
{
    return NULL;
}
