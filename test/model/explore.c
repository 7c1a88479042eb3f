#include "explore.h"
#include "space.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* How often each step was taken. */
static struct {
    const char *words;
    size_t number;
} counts[128];
enum { COUNTS = sizeof(counts) / sizeof(*counts) };

static void count(const struct steps *steps)
{
    for (int i = 0, at = 0; i < steps->number; i++, at = 0) {
        while (at < COUNTS - 1 && counts[at].words && counts[at].words != steps->step[i].words)
            at++;
        counts[at].words = steps->step[i].words;
        counts[at].number++;
    }
}

static void print_step(const char *names, int number, const struct step *step)
{
    char words[160];
    snprintf(words, sizeof(words), step->words, step->a, step->b);
    if (step->thread >= 0)
        printf("  %2d. thread %c: %s\n", number, names[step->thread], words);
    else
        printf("  %2d. %s: %s\n", number, step->thread == DEVICE ? "device" : "host", words);
}

/* Prints the way to the index-th state, gives its threads their names, and returns its length. */
static int print_way(const struct space *space, struct steps *steps, size_t index, char *names)
{
    if (index == 0)
        return 0;
    size_t parent = space->parents[index];
    int number = print_way(space, steps, parent, names) + 1;
    model_steps(steps, steps->config, space_at(space, parent));
    for (int i = 0; i < steps->number; i++) {
        struct state state = steps->step[i].state;
        char before[THREADS];
        int from[THREADS];
        space_canonical(space, &state, from);
        if (memcmp(&state, space_at(space, index), sizeof(state)))
            continue;
        print_step(names, number, &steps->step[i]);
        memcpy(before, names, sizeof(before));
        for (int t = 0; t < THREADS; t++)
            names[t] = before[from[t]];
        break;
    }
    return number;
}

static void print_trace(struct exploration *exploration, const struct space *space,
                        struct steps *steps, size_t index, const struct step *broken)
{
    char names[THREADS] = {'A', 'B', 'C'};
    struct step last = *broken;
    exploration->broken = last.broken;
    if (!space->parents)
        return;
    exploration->length = print_way(space, steps, index, names) + 1;
    print_step(names, exploration->length, &last);
}

/* Everything that follows the index-th state; returns the step that breaks a property. */
static const struct step *expand(struct exploration *exploration, struct space *space,
                                 struct steps *steps, size_t index)
{
    model_steps(steps, steps->config, space_at(space, index));
    exploration->transitions += steps->number;
    if (exploration->count_steps)
        count(steps);
    for (int i = 0; i < steps->number; i++)
        if (steps->step[i].broken)
            return &steps->step[i];
    uint64_t hashes[MOST_STEPS];
    for (int i = 0; i < steps->number; i++)
        hashes[i] = space_prepare(space, &steps->step[i].state);
    for (int i = 0; i < steps->number && exploration->complete; i++)
        exploration->complete = space_add(space, &steps->step[i].state, hashes[i], index);
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void explore(struct exploration *exploration, const struct config *config)
{
    static struct steps steps;
    struct space space;
    struct state first;
    const struct step *broken = NULL;
    double began = now();
    space_begin(&space, exploration->most_states, exploration->fingerprints,
                config->strict ? 0 : config->threads);
    steps.config = config;
    model_begin(&first, config);
    exploration->complete = space_add(&space, &first, space_prepare(&space, &first), 0);
    for (size_t i = 0; i < space.number && !broken && exploration->complete; i++) {
        space.expanded = i;
        broken = expand(exploration, &space, &steps, i);
        if (broken)
            print_trace(exploration, &space, &steps, i, broken);
    }
    for (int i = 0; i < COUNTS && counts[i].words; i++)
        printf("  %12zu %s\n", counts[i].number, counts[i].words);
    exploration->states = space.number;
    exploration->bytes = space_bytes(&space);
    exploration->seconds = now() - began;
    space_end(&space);
}
