/* The configurations that are explored. */
#ifndef CACHALOT_TEST_MODEL_CONFIGS_H
#define CACHALOT_TEST_MODEL_CONFIGS_H

#include "model.h"

/* NULL when there is none of that name. */
const struct config *config_named(const char *name);
void configs_print(void);

#endif
