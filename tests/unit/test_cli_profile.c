/* SPDX-License-Identifier: MIT
 *
 * The table of a profile on the command line, of figures such as a GPU gives: what is 0 and what is not known, and
 * shares that say the same as the verdict.
 */
#include <stdlib.h>

#include "../../examples/cli/cli.h"
#include "check.h"

/* What is printed of one kernel with these members, metrics, and members of its verdict. */
static char *printed(const char *kernel, const char *metrics, const char *verdict)
{
    char json[4096], *text = NULL;
    size_t len = 0;
    FILE *kept = stdout;
    snprintf(
        json, sizeof(json),
        "{\"facts\":{\"source\":\"cupti\",\"device\":\"NVIDIA H200\",\"arch\":\"sm_90a\",\"multiprocessors\":132,"
        "\"ceilings\":{\"dram_gb_s\":4000},\"kernels\":[{\"name\":\"k\",\"launches\":1,\"time_us\":50,\"share\":1,"
        "\"registers\":32%s,\"metrics\":{%s}}]},"
        "\"advice\":{\"verdict\":{\"bound\":\"memory\",\"because\":\"so\"},\"kernels\":[{\"bound\":\"memory\"%s}]}}",
        kernel, metrics, verdict);
    json_t *profile = json_loads(json, 0, NULL);
    CHECK(profile != NULL);
    stdout = open_memstream(&text, &len);
    CHECK(stdout != NULL);
    cli_print_profile(profile);
    fclose(stdout);
    stdout = kept;
    json_decref(profile);
    return text;
}

TEST(what_is_not_known_is_not_0)
{
    char *text = printed("", "\"tensor_active_pct\":0,\"issue_pct\":0", "");
    CHECK_HAS(text, "memory         -     -     0 %    0 %       -         32\n");
    free(text);
    text = printed(",\"occupancy\":0.5", "\"dram_pct\":0", ",\"reached\":0.004");
    CHECK_HAS(text, "memory       0 %   0 %       -      -    50 %         32\n");
    free(text);
}

/* 40 blocks at 90 % of the tensor cores of their multiprocessors are 27 % of the device's; DRAM at 90 % of what it was
 * measured to copy at is 77 % of what its clock would allow. */
TEST(shares_are_those_of_the_verdict)
{
    char *text = printed("", "\"tensor_active_pct\":90,\"sm_active_pct\":30,\"issue_pct\":20,\"dram_pct\":77",
                         ",\"gb_per_s\":3600,\"reached\":0.9");
    CHECK_HAS(text, "memory      90 %  90 %    27 %   20 %       -         32\n");
    free(text);
    text = printed("", "\"dram_pct\":77", ",\"gb_per_s\":4100");
    CHECK_HAS(text, "memory         -  100 %");
    free(text);
    text = printed("", "\"dram_pct\":77", ",\"gb_per_s\":null,\"reached\":null");
    CHECK_HAS(text, "memory         -  77 %");
    free(text);
}

TEST_MAIN(RUN(what_is_not_known_is_not_0), RUN(shares_are_those_of_the_verdict))
