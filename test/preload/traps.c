/* What is inexact is trapped, from before CUDA begins. */
#include "driver_case.h"

#include <fenv.h>

int main(void)
{
    CHECK(feenableexcept(FE_INEXACT) != -1);
    begin();
    for (int i = 0; i < 3000; i++)
        OK(cuMemFree(make(1000 + (size_t)i * 977)));
    SAY(fegetexcept() == FE_INEXACT);
    return 0;
}
