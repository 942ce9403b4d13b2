/* SPDX-License-Identifier: MIT
 *
 * Names and rates of architectures.
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

/* Whitepapers and data sheets (A100, Ada, H100, Blackwell), without sparsity. The fastest unit of all is often one for
 * integers or for numbers of 4 bits. The limits of sm_120 are twice its documented rates, which differ between its
 * chips by the type that sums have. */
static const struct {
    int major, minor; /* minor -1: any */
    stitch__arch_rates rates;
} all_rates[] = {
    {8, 0, {128, 1024, 2048, 0, 1024, 2048, 8192}},       {8, 9, {256, 512, 1024, 2048, 512, 1024, 4096}},
    {8, -1, {256, 512, 1024, 0, 512, 1024, 4096}},        {9, -1, {256, 2048, 4096, 8192, 2048, 4096, 8192}},
    {10, 0, {256, 4096, 8192, 16384, 4096, 8192, 32768}}, {10, -1, {256, 4096, 8192, 16384, 4096, 8192, 49152}},
    {12, -1, {256, 512, 1024, 2048, 1024, 2048, 4096}},
};

const stitch__arch_rates *stitch__arch_rates_of(int major, int minor)
{
    for (size_t i = 0; i < STITCH__COUNT(all_rates); i++) {
        if (all_rates[i].major == major && (all_rates[i].minor < 0 || all_rates[i].minor == minor))
            return &all_rates[i].rates;
    }
    return NULL;
}

double stitch__device_bandwidth(const stitch__device *dev)
{
    int bus_bits = 0;
    if (dev->drv->DeviceGetAttribute(&bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, dev->ordinal) !=
        CUDA_SUCCESS)
        bus_bits = 0;
    return 2.0 * (double)dev->info.memory_clock_khz * 1e3 * bus_bits / 8; /* double data rate */
}
