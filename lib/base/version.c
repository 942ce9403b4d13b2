/* SPDX-License-Identifier: MIT
 *
 * Version of the library.
 */
#include <stitch/version.h>

uint32_t stitch_version(void)
{
    return STITCH_VERSION_NUM;
}

const char *stitch_version_string(void)
{
    return STITCH_VERSION_STRING;
}
