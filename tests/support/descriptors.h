/* SPDX-License-Identifier: MIT
 *
 * How many descriptors this process has open, to compare with what it had before.
 */
#ifndef STITCH_TESTS_DESCRIPTORS_H
#define STITCH_TESTS_DESCRIPTORS_H

#include <dirent.h>

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

#endif
