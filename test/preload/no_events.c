/* Memory that moves on a driver without context events (before 12.5): nothing that work may use is taken down when
 * that shows, which is at the first free that is not on a lane. */
#include "driver_case.h"

int main(void)
{
    CUstream stream;
    begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr first = make(64 * MIB), other = make(3 * MIB);
    make(3 * MIB);
    write_all(stream, 50000, other, 1024);
    write_all(stream, 1000000000, first, 64 * MIB);
    OK(cuMemFree(first)); /* on the lane: reusable, while the work goes on for a second */
    for (size_t size = 70; size < 240; size += 6) { /* what was below it moves on, each time */
        CUdeviceptr larger = make(size * MIB);
        make(3 * MIB);
        OK(cuMemFree(larger));
    }
    make(236 * MIB);
    OK(cuMemFreeAsync(other, stream));
    make(64 * MIB);
    return cuCtxSynchronize();
}
