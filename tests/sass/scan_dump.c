/* SPDX-License-Identifier: MIT
 *
 * Prints what the table of lib/verify/scan_sass.c says about each instruction of a list, for check_sass.py: lines of
 * "ARCH LOW HIGH" with numbers in hexadecimal on standard input, "KIND|A|B|ACC|NAME" on standard output.
 */
#include <stdio.h>

#include "verify/scan.h"

int main(void)
{
    int arch;
    uint64_t low, high;
    while (scanf("%d %" SCNx64 " %" SCNx64, &arch, &low, &high) == 3) {
        stitch__sass s;
        stitch__sass_decode(arch, low, high, &s);
        printf("%s|%s|%s|%s|%s\n", stitch__scan_kind_name(s.kind), stitch__scan_type_name(s.a),
               stitch__scan_type_name(s.b), stitch__scan_type_name(s.acc), s.name);
    }
    return 0;
}
