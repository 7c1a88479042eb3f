/* The report on call sites: frames of Python as text, native frames as a file and an offset. */
#include "stats/report/parts.h"
#include "stats/report/value.h"

#include <stdio.h>
#include <string.h>

/* `python` may lie in the live table, whose text need not end. */
static void put_python(json_t *frames, const char *python)
{
    char text[SITE_TEXT];
    snprintf(text, sizeof text, "%.*s", SITE_TEXT - 1, python);
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = '\0';
        if (*line)
            report_append(frames, report_string(line));
    }
}

static void put_native(json_t *frames, json_t *native, const struct sites *sites, uint64_t frame)
{
    uint64_t module = frame >> 48, offset = frame & ((UINT64_C(1) << 48) - 1);
    char path[sizeof sites->module->path] = "?", text[sizeof path + 32];
    if (module && module <= SITE_MODULES && sites->module[module - 1].ready == 2)
        snprintf(path, sizeof path, "%.*s", (int)sizeof path - 1, sites->module[module - 1].path);
    else
        module = 0;
    const char *slash = strrchr(path, '/');
    snprintf(text, sizeof text, "%s+0x%llx", slash ? slash + 1 : path, (unsigned long long)offset);
    report_append(frames, report_string(text));
    json_t *place = json_object();
    report_put(place, "module", module ? report_number(module - 1) : json_null());
    report_put(place, "offset", report_address(offset));
    report_append(native, place);
}

static json_t *site_object(const struct sites *sites, const struct site *site)
{
    json_t *object = json_object(), *frames = json_array(), *native = json_array();
    uint64_t count = site->frames < SITE_FRAMES ? site->frames : SITE_FRAMES;
    if (atomic_load_explicit(&site->ready, memory_order_acquire)) {
        put_python(frames, site->python);
        for (uint64_t i = 0; i < count; i++)
            put_native(frames, native, sites, site->frame[i]);
    }
    report_put(object, "frames", frames);
    report_put(object, "native", native);
    REPORT_NUMBER(object, site, live_bytes);
    REPORT_NUMBER(object, site, live_blocks);
    REPORT_NUMBER(object, site, allocations);
    report_put(object, "kind", json_string(report_kind_name((unsigned)site->kind)));
    return object;
}

static json_t *modules(const struct sites *sites)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < SITE_MODULES && sites->module[i].ready == 2; i++) {
        char path[sizeof sites->module->path];
        snprintf(path, sizeof path, "%.*s", (int)sizeof path - 1, sites->module[i].path);
        report_append(array, report_string(path));
    }
    return array;
}

/* Used places are spread over the table; the report numbers them without gaps. */
uint32_t report_site(const struct report_source *source, uint64_t place)
{
    return place && place <= SITES ? source->site_index[place - 1] : 0;
}

json_t *report_site_or_null(const struct report_source *source, uint64_t place)
{
    uint32_t index = report_site(source, place);
    return index ? report_number(index - 1) : json_null();
}

void report_number_sites(struct report_source *source)
{
    const struct sites *sites = source->page->own.sites;
    for (uint32_t i = 0; sites && i < SITES; i++)
        if (sites->site[i].hash)
            source->site_index[i] = ++source->site_count;
}

void report_put_sites(json_t *root, const struct report_source *source)
{
    const struct sites *sites = source->page->own.sites;
    if (!sites)
        return;
    json_t *array = json_array();
    for (uint32_t i = 0; i < SITES; i++)
        if (source->site_index[i])
            report_append(array, site_object(sites, &sites->site[i]));
    report_put(root, "sites", array);
    report_put(root, "modules", modules(sites));
    report_put(root, "sites_every", report_number(sites->every));
    report_put(root, "sites_lost", report_number(sites->lost));
}
