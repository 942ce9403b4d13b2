/* SPDX-License-Identifier: MIT
 *
 * A member of a JSON text by its path.
 */
#ifndef STITCH_TEST_JSON_PATH_H
#define STITCH_TEST_JSON_PATH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* "correct.trials.0.seed"; NULL: there is none. It belongs to *root (NULL at first), which the next call releases. */
__attribute__((unused)) static const json_t *json_at(json_t **root, const char *text, const char *path)
{
    const json_t *v;
    char key[64];

    json_decref(*root);
    v = *root = json_loads(text, 0, NULL);
    while (v && *path) {
        size_t len = strcspn(path, ".");
        snprintf(key, sizeof(key), "%.*s", (int)len, path);
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
        path += len + (path[len] == '.');
    }
    return v;
}

#endif
