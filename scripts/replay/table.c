/* Open addressing with linear probing; what is taken out leaves no hole, so that the table is as
 * small as what lives, however long the trace. */
#include "scripts/replay/trace.h"

#include <stdlib.h>

static uint64_t home(const struct table *table, uint64_t key)
{
    return (key * UINT64_C(0x9e3779b97f4a7c15)) >> (__builtin_clzll(table->size) + 1);
}

static int grow(struct table *table)
{
    struct table fresh = {.size = table->size ? 2 * table->size : 1024};
    fresh.entry = calloc(fresh.size, sizeof *fresh.entry);
    if (!fresh.entry)
        return -1;
    for (uint64_t i = 0; i < table->size; i++)
        if (table->entry[i].value)
            table_put(&fresh, table->entry[i].key, table->entry[i].value);
    free(table->entry);
    *table = fresh;
    return 0;
}

int table_put(struct table *table, uint64_t key, uint64_t value)
{
    if (2 * table->count >= table->size && grow(table))
        return -1;
    uint64_t i = home(table, key);
    for (; table->entry[i].value; i = (i + 1) & (table->size - 1))
        if (table->entry[i].key == key)
            return 1;
    table->entry[i] = (struct table_entry){key, value};
    table->count++;
    return 0;
}

/* Moves back what would not be found any more behind the hole at `hole`. */
static void close_hole(struct table *table, uint64_t hole)
{
    uint64_t mask = table->size - 1;
    for (uint64_t i = (hole + 1) & mask; table->entry[i].value; i = (i + 1) & mask) {
        uint64_t distance = (i - home(table, table->entry[i].key)) & mask;
        if (distance < ((i - hole) & mask))
            continue;
        table->entry[hole] = table->entry[i];
        hole = i;
    }
    table->entry[hole].value = 0;
}

uint64_t table_take(struct table *table, uint64_t key)
{
    if (!table->size)
        return 0;
    for (uint64_t i = home(table, key); table->entry[i].value; i = (i + 1) & (table->size - 1)) {
        if (table->entry[i].key != key)
            continue;
        uint64_t value = table->entry[i].value;
        close_hole(table, i);
        table->count--;
        return value;
    }
    return 0;
}
