/* In a library of the tests only: sets numbers of the policy before the first allocator is made, as TEST_POLICY says
 * (`name=number,name=number`). */
#include "allocator/base/policy.h"

#include <stdlib.h>
#include <string.h>

__attribute__((constructor)) static void set_policy(void)
{
    const char *given = getenv("TEST_POLICY");
    char text[512] = "", *rest;
    if (!given || strlen(given) >= sizeof text)
        abort();
    strcpy(text, given);
    for (char *item = strtok_r(text, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(item, '=');
        if (!value)
            abort();
        *value++ = 0;
        if (policy_set(item, strtoull(value, NULL, 10)))
            abort();
    }
}
