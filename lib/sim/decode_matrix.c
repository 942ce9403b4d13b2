/* SPDX-License-Identifier: MIT
 *
 * Decoding of matrix instructions.
 */
#include "sim/exec.h"
#include "sim/parse.h"
bool ptx_dec_matrix(ptx_parser *p, int op)
{
    return ptx_refuse(p, "is not supported");
}
