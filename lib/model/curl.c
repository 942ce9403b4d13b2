/* SPDX-License-Identifier: MIT
 *
 * Whether libcurl is there: linked, or found and opened once a process.
 */
#define STITCH__CURL_DEFINES
#include "model/curl.h"

#include "model/model.h"

#ifndef STITCH_CURL_OPENED

const char *stitch__curl_open(const char **why)
{
    *why = "";
    return curl_version();
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

stitch__curl_table stitch__curl;
static char trouble[1024]; /* "": it was opened */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so", NULL};

/* It stays open: what it uses has handlers that run when the process ends. */
static bool open_named(const char *name)
{
    static const struct {
        const char *name;
        size_t at;
    } members[] = {
#define MEMBER(name) {#name, offsetof(stitch__curl_table, name)},
        STITCH__CURL_FUNCTIONS(MEMBER)
#undef MEMBER
    };
    size_t used = strlen(trouble);
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *said = dlerror();
        snprintf(trouble + used, sizeof(trouble) - used, "%s%s", used ? "; " : "", said ? said : name);
        return false;
    }
    for (size_t i = 0; i < STITCH__COUNT(members); i++) {
        void *address = dlsym(handle, members[i].name);
        if (!address) {
            snprintf(trouble + used, sizeof(trouble) - used, "%s%s lacks %s: 7.68 or later is needed", used ? "; " : "",
                     name, members[i].name);
            return false;
        }
        memcpy((char *)&stitch__curl + members[i].at, &address, sizeof(address));
    }
    trouble[0] = 0;
    return true;
}

static void open_once(void)
{
    for (size_t i = 0; names[i]; i++)
        if (open_named(names[i]))
            return;
}

const char *stitch__curl_open(const char **why)
{
    pthread_once(&once, open_once);
    *why = trouble;
    return trouble[0] ? NULL : stitch__curl.curl_version();
}

#endif
