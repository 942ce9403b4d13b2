/* SPDX-License-Identifier: MIT
 *
 * libcurl: linked, or (STITCH_CURL_OPENED, in wheels) opened when the first model over HTTP is made, so that a machine
 * without it lacks nothing else.
 */
#ifndef STITCH_LIB_MODEL_CURL_H
#define STITCH_LIB_MODEL_CURL_H

#ifdef STITCH_CURL_OPENED
#define CURL_DISABLE_TYPECHECK /* macros in the place of functions */
#endif
#include <curl/curl.h>

#ifdef STITCH_CURL_OPENED
#undef curl_easy_setopt
#undef curl_easy_getinfo

#define STITCH__CURL_FUNCTIONS(X)                                                                                      \
    X(curl_easy_cleanup)                                                                                               \
    X(curl_easy_getinfo)                                                                                               \
    X(curl_easy_init)                                                                                                  \
    X(curl_easy_setopt)                                                                                                \
    X(curl_easy_strerror)                                                                                              \
    X(curl_free)                                                                                                       \
    X(curl_getdate)                                                                                                    \
    X(curl_global_cleanup)                                                                                             \
    X(curl_global_init)                                                                                                \
    X(curl_multi_add_handle)                                                                                           \
    X(curl_multi_cleanup)                                                                                              \
    X(curl_multi_info_read)                                                                                            \
    X(curl_multi_init)                                                                                                 \
    X(curl_multi_perform)                                                                                              \
    X(curl_multi_poll)                                                                                                 \
    X(curl_multi_remove_handle)                                                                                        \
    X(curl_slist_append)                                                                                               \
    X(curl_slist_free_all)                                                                                             \
    X(curl_url)                                                                                                        \
    X(curl_url_cleanup)                                                                                                \
    X(curl_url_get)                                                                                                    \
    X(curl_url_set)                                                                                                    \
    X(curl_version)                                                                                                    \
    X(curl_version_info)

#define STITCH__CURL_MEMBER(name) __typeof__(name) *name;
typedef struct stitch__curl_table {
    STITCH__CURL_FUNCTIONS(STITCH__CURL_MEMBER)
} stitch__curl_table;

/* Filled by stitch__curl_open(), before which none may be called. */
extern stitch__curl_table stitch__curl;

#ifndef STITCH__CURL_DEFINES
#define curl_easy_cleanup        stitch__curl.curl_easy_cleanup
#define curl_easy_getinfo        stitch__curl.curl_easy_getinfo
#define curl_easy_init           stitch__curl.curl_easy_init
#define curl_easy_setopt         stitch__curl.curl_easy_setopt
#define curl_easy_strerror       stitch__curl.curl_easy_strerror
#define curl_free                stitch__curl.curl_free
#define curl_getdate             stitch__curl.curl_getdate
#define curl_global_cleanup      stitch__curl.curl_global_cleanup
#define curl_global_init         stitch__curl.curl_global_init
#define curl_multi_add_handle    stitch__curl.curl_multi_add_handle
#define curl_multi_cleanup       stitch__curl.curl_multi_cleanup
#define curl_multi_info_read     stitch__curl.curl_multi_info_read
#define curl_multi_init          stitch__curl.curl_multi_init
#define curl_multi_perform       stitch__curl.curl_multi_perform
#define curl_multi_poll          stitch__curl.curl_multi_poll
#define curl_multi_remove_handle stitch__curl.curl_multi_remove_handle
#define curl_slist_append        stitch__curl.curl_slist_append
#define curl_slist_free_all      stitch__curl.curl_slist_free_all
#define curl_url                 stitch__curl.curl_url
#define curl_url_cleanup         stitch__curl.curl_url_cleanup
#define curl_url_get             stitch__curl.curl_url_get
#define curl_url_set             stitch__curl.curl_url_set
#define curl_version             stitch__curl.curl_version
#define curl_version_info        stitch__curl.curl_version_info
#endif
#endif

#endif
