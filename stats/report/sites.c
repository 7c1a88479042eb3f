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

/* The square root, rounded up to a whole number of grains. */
static uint64_t error_of(uint64_t variance)
{
    uint64_t root = 0;
    variance = report_not_negative(variance);
    for (uint64_t bit = UINT64_C(1) << 31; bit; bit /= 2)
        if ((root + bit) * (root + bit) < variance)
            root += bit;
    return (root + (variance > 0)) * SITE_GRAIN;
}

static void put_held(json_t *object, const struct site_held *held, const char *const names[3])
{
    uint64_t blocks = report_not_negative(stat_get(&held->blocks));
    report_put(object, names[0], report_number(report_not_negative(stat_get(&held->bytes))));
    report_put(object, names[1], report_number((blocks + SITE_PARTS / 2) / SITE_PARTS));
    report_put(object, names[2], report_number(error_of(stat_get(&held->variance))));
}

/* The peak of allocated bytes of the site's device. */
static uint64_t peak_of(const struct report_source *source, uint64_t device)
{
    for (unsigned i = 0; i < source->row_count; i++)
        if (source->rows[i].device->ordinal == device)
            return stat_get(&source->rows[i].stats.stat[STAT_allocated_bytes].peak[STAT_POOLS]);
    return 0;
}

static json_t *site_object(const struct report_source *source, const struct sites *sites,
                           const struct site *site)
{
    static const char *const live[] = {"live_bytes", "live_blocks", "live_error_bytes"};
    static const char *const at_peak[] = {"peak_bytes", "peak_blocks", "peak_error_bytes"};
    json_t *object = json_object(), *frames = json_array(), *native = json_array();
    uint64_t count = site->frames < SITE_FRAMES ? site->frames : SITE_FRAMES;
    if (atomic_load_explicit(&site->ready, memory_order_acquire)) {
        put_python(frames, site->python);
        for (uint64_t i = 0; i < count; i++)
            put_native(frames, native, sites, site->frame[i]);
    }
    report_put(object, "frames", frames);
    report_put(object, "native", native);
    put_held(object, &site->live, live);
    put_held(object, sites_at_peak(sites, site, peak_of(source, site->device)), at_peak);
    report_put(object, "allocations",
               report_number((stat_get(&site->allocations) + SITE_PARTS / 2) / SITE_PARTS));
    report_put(object, "device",
               site->device < SITE_DEVICES ? report_number(site->device) : json_null());
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

int report_sites_are_exact(const struct report_source *source)
{
    const struct sites *sites = source->page->own.sites;
    return sites && sites->every != SITES_BY_BYTES;
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
            report_append(array, site_object(source, sites, &sites->site[i]));
    report_put(root, "sites", array);
    report_put(root, "modules", modules(sites));
    int exact = report_sites_are_exact(source);
    uint64_t rate = stat_get(&sites->rate);
    report_put(root, "sites_every", exact ? report_number(sites->every) : json_null());
    report_put(
        root, "sites_mean_bytes",
        exact ? json_null()
              : report_number(site_mean(rate >= 1 && rate <= SITE_RATES ? (unsigned)rate : 1)));
    report_put(root, "sites_lost", report_number(sites->lost));
}
