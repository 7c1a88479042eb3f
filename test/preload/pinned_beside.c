/* Memory for which SYNC_MEMOPS was set lies idle, and a kernel waits for the host: natively no
 * request waits for it. Arguments: bytes; busy; capture: and a stream captures; set: and then the
 * attribute is set for another block (the simulated device waits there). */
#include "driver_case.h"

static void pin(CUdeviceptr pointer)
{
    unsigned on = 1;
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
}

int main(int argc, char **argv)
{
    static volatile int flag;
    CUstream capturing, busy;
    CUgraph graph;
    CUdeviceptr block;
    CHECK(argc == 3);
    int captures = strcmp(argv[2], "busy") != 0;
    begin();
    CUdeviceptr first = make((size_t)atol(argv[1])), second = make((size_t)atol(argv[1]));
    OK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    pin(first);
    OK(cuMemFree(first));
    if (captures)
        OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cachalot_sim_launch_spin(busy, &flag, NULL, 0));
    if (!strcmp(argv[2], "set"))
        pin(second);
    unsigned long long asked = cachalot_sim_calls("cuEventQuery");
    for (int i = 0; i < 20; i++)
        SAY(cuMemAlloc(&block, 21 * MIB));
    SAY(cachalot_sim_calls("cuEventQuery") - asked > 100);
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    if (captures)
        SAY(cuStreamEndCapture(capturing, &graph));
    return 0;
}
