/* SPDX-License-Identifier: MIT
 *
 * Messages of a request: as JSON, as a hash.
 */
#include "model/model.h"

const char *stitch__message_role(int32_t role)
{
    static const char *const names[] = {"system", "user", "assistant"};
    return role >= 0 && (size_t)role < STITCH__COUNT(names) ? names[role] : NULL;
}

json_t *stitch__messages_json(const stitch_message *messages, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *m =
            json_pack("{s:s, s:s}", "role", stitch__message_role(messages[i].role), "content", messages[i].content);
        if (json_array_append_new(list, m) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

void stitch__messages_hash(const stitch_message *messages, size_t count, char hex[65])
{
    stitch__sha256 h;
    stitch__sha256_init(&h);
    for (size_t i = 0; i < count; i++) {
        stitch__sha256_update(&h, &messages[i].role, sizeof(messages[i].role));
        stitch__sha256_string(&h, messages[i].content);
    }
    stitch__sha256_hex(&h, hex);
}

uint64_t stitch__messages_bytes(const stitch_message *messages, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(messages[i].content);
    return bytes;
}
