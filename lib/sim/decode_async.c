/* SPDX-License-Identifier: MIT
 *
 * Decoding of asynchronous copies and mbarriers.
 */
#include "sim/exec.h"
#include "sim/parse.h"
bool ptx_dec_cp(ptx_parser *p, int op)
{
    return ptx_refuse(p, "is not supported");
}
bool ptx_dec_mbarrier(ptx_parser *p, int op)
{
    return ptx_refuse(p, "is not supported");
}
