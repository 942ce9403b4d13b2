/* SPDX-License-Identifier: MIT
 *
 * The table of the rules, which rules.def holds.
 */
#include "profile/rules.h"

#define LIBRARY STITCH__RULE_LIBRARY
#define INFORMS STITCH__RULE_INFORMS
#define GOES    STITCH__RULE_GOES

static const stitch__rule rules[] = {
#define RULE(id, about, flags, when, problem, action, hides)                                                           \
    {#id, STITCH__RULE_##about, flags, stitch__rule_##id, when, problem, action, hides},
#include "profile/rules.def"
#undef RULE
};

const stitch__rule *stitch__rules(size_t *count)
{
    *count = STITCH__COUNT(rules);
    return rules;
}
