/* SPDX-License-Identifier: MIT
 *
 * Names of architectures.
 */
#include "cuda/internal.h"

bool stitch__arch_parse(const char *arch, int *number, char *suffix)
{
    if (!arch || strncmp(arch, "sm_", 3) != 0)
        return false;
    size_t digits = strspn(arch + 3, "0123456789");
    if (digits < 2 || digits > 3)
        return false;
    int n = 0;
    for (size_t i = 0; i < digits; i++)
        n = n * 10 + (arch[3 + i] - '0');
    char tail = arch[3 + digits];
    if (tail && (arch[3 + digits + 1] || (tail != 'a' && tail != 'f')))
        return false;
    *number = n;
    *suffix = tail;
    return true;
}
