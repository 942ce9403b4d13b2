/* SPDX-License-Identifier: MIT
 *
 * libstitch: language models write, verify and optimise whole GPU programs in process. Includes every public header.
 */
#ifndef STITCH_STITCH_H
#define STITCH_STITCH_H

#include <stitch/agent.h>
#include <stitch/base.h>
#include <stitch/compile.h>
#include <stitch/context.h>
#include <stitch/device.h>
#include <stitch/model.h>
#include <stitch/profile.h>
#include <stitch/program.h>
#include <stitch/task.h>
#include <stitch/trace.h>
#include <stitch/verify.h>
#include <stitch/version.h>

#endif
