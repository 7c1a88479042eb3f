#include "stats/output/report_identity.h"

#include "stats/os/proc.h"
#include "stats/page/page.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOSTNAME "\n    \"hostname\": \""
#define SESSION "\n    \"session\": \""

int report_identify(const char *report, struct report_identity *identity)
{
    static const char version[] = "{\n  \"schema_version\": \"1.", kind[] = "\n  \"kind\": \"";
    const char *at = strstr(report, kind), *begin = strstr(report, "\n    \"start\": \"");
    const char *end = begin != NULL ? strstr(begin, "\n    \"uid\": ") : NULL;
    if (strncmp(report, version, sizeof version - 1) != 0 || at == NULL || end == NULL)
        return 0;
    at += sizeof kind - 1;
    identity->text = begin;
    identity->length = (size_t)(end - begin);
    identity->harvest = strncmp(at, "harvest\"", 8) == 0;
    identity->final = identity->harvest || strncmp(at, "exit\"", 5) == 0;
    return 1;
}

int report_is_same(const struct report_identity *one, const struct report_identity *other)
{
    return one->length == other->length && memcmp(one->text, other->text, one->length) == 0;
}

/* What follows `key` in the identity; an empty text if nothing does. */
static const char *after(const struct report_identity *identity, const char *key)
{
    const char *at = strstr(identity->text, key);
    return at != NULL && at < identity->text + identity->length ? at + strlen(key) : "";
}

static uint64_t number(const struct report_identity *identity, const char *key)
{
    return strtoull(after(identity, key), NULL, 10);
}

/* Whether the process that leads a run has ended: the command `cachalot run`, or what it became. A
 * session begins with its pid and pid namespace; one in another form never ends. */
static int has_ended(const char *session, uint64_t here)
{
    char *end;
    unsigned long long leader = strtoull(session, &end, 10);
    if (leader == 0 || leader > INT32_MAX || *end != '-' || here == 0 ||
        strtoull(end + 1, &end, 10) != here || *end != '-')
        return 0;
    return kill((pid_t)leader, 0) != 0 && errno == ESRCH;
}

int report_run_is_over(const struct report_identity *writer, const struct page *page)
{
    char session[sizeof page->session];
    const char *host = after(writer, HOSTNAME), *given = after(writer, SESSION);
    size_t length = strlen(page->hostname);
    uint64_t here = proc_namespace();
    snprintf(session, sizeof session, "%.*s", (int)strcspn(given, "\""), given);
    return strncmp(host, page->hostname, length) == 0 && host[length] == '"' &&
           number(writer, "\"pid_namespace\": ") == here && !page_is_of_run(page, session) &&
           has_ended(session, here) &&
           !proc_is_alive(number(writer, "\"pid\": "), number(writer, "\"start_ticks\": "));
}
