/* SPDX-License-Identifier: MIT
 *
 * Version of the headers and of the library that was loaded.
 */
#ifndef STITCH_VERSION_H
#define STITCH_VERSION_H

#include <stitch/base.h>

#define STITCH_VERSION_MAJOR  0
#define STITCH_VERSION_MINOR  1
#define STITCH_VERSION_PATCH  0
#define STITCH_VERSION_STRING "0.1.0"
/** 0xXXYYZZ. */
#define STITCH_VERSION_NUM ((STITCH_VERSION_MAJOR << 16) | (STITCH_VERSION_MINOR << 8) | STITCH_VERSION_PATCH)
/** True if the headers are of version x.y.z or later. */
#define STITCH_AT_LEAST_VERSION(x, y, z) (STITCH_VERSION_NUM >= (((x) << 16) | ((y) << 8) | (z)))

#if defined(STITCH_NO_DEPRECATED_WARNINGS) || !(defined(__GNUC__) || defined(__clang__))
#define STITCH_DEPRECATED(version, message)
#else
#define STITCH_DEPRECATED(version, message) __attribute__((deprecated("since " #version ": " message)))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** STITCH_VERSION_NUM of the library that was loaded. @since 0.1.0 */
STITCH_API uint32_t stitch_version(void);
/** "0.1.0" of the library that was loaded. @since 0.1.0 */
STITCH_API const char *stitch_version_string(void);

#ifdef __cplusplus
}
#endif
#endif
