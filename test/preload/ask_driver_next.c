/* A program with a library that asks for what comes next after it: the driver. */
#include "driver_case.h"

void allocate_by_next(void);

int main(void)
{
    begin();
    allocate_by_next();
    return 0;
}
