/* model [--most MILLIONS] [--fingerprints] [--harm] [--steps] CONFIG: whether the rule holds there;
 * 0 when it does, in all states. model … --plant BUG [CONFIG]: 0 when the bug is found, with a
 * shortest trace of it. model --list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "configs.h"
#include "explore.h"

#define X(name, config, words) {#name, config, words},
static const struct planted {
    const char *name, *config, *words;
} planted[] = {PLANTS(X)};
#undef X

static int usage(void)
{
    fprintf(stderr, "usage: model [--most MILLIONS] [--fingerprints] [--harm] [--steps] "
                    "[--plant BUG] [CONFIG] | --list\n");
    return 2;
}

static int list(void)
{
    configs_print();
    for (int i = 1; i < PLANT_END; i++)
        printf("--plant %-22s %s (%s)\n", planted[i].name, planted[i].words, planted[i].config);
    return 0;
}

static enum plant plant_named(const char *name)
{
    for (int i = 1; name && i < PLANT_END; i++)
        if (!strcasecmp(planted[i].name, name))
            return (enum plant)i;
    return PLANT_END;
}

static void print(const struct exploration *e, const struct config *config)
{
    printf("%s, %s:\n", config->name, planted[plant].words);
    if (e->broken)
        printf("  %s, after %d steps\n", e->broken, e->length);
    else
        printf("  %s\n", e->complete ? "holds in all states" : "held so far: not all states seen");
    printf("  %zu states, %zu transitions, %.1f s, %zu MB\n", e->states, e->transitions, e->seconds,
           e->bytes / 1000000);
}

int main(int argc, char **argv)
{
    struct exploration e = {.most_states = 40 * 1000000};
    const char *name = NULL;
    int harm_only = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--list"))
            return list();
        else if (!strcmp(argv[i], "--most") && i + 1 < argc)
            e.most_states = strtoul(argv[++i], NULL, 10) * 1000000;
        else if (!strcmp(argv[i], "--plant") && i + 1 < argc)
            plant = plant_named(argv[++i]);
        else if (!strcmp(argv[i], "--fingerprints"))
            e.fingerprints = 1;
        else if (!strcmp(argv[i], "--harm"))
            harm_only = 1;
        else if (!strcmp(argv[i], "--steps"))
            e.count_steps = 1;
        else
            name = argv[i];
    }
    if (plant == PLANT_END || (!name && !plant) ||
        !config_named(name ? name : planted[plant].config))
        return usage();
    struct config config = *config_named(name ? name : planted[plant].config);
    config.harm_only = harm_only;
    explore(&e, &config);
    print(&e, &config);
    return plant ? !e.broken : e.broken || !e.complete;
}
