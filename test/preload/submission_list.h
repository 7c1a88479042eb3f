/* Every function of the simulated driver that carries work, and a call of it with what
 * submissions.c has: X(name, suffix of the twin, kind, arguments), ONE(name, kind, arguments).
 */
#ifndef PRELOAD_SUBMISSION_LIST_H
#define PRELOAD_SUBMISSION_LIST_H

#define LAUNCH_LIST(X, ONE)                                                                        \
    X(cuLaunchKernel, _ptsz, kernels, (function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL))   \
    X(cuLaunchKernelEx, _ptsz, kernels, (&config, function, parameters, NULL))                     \
    X(cuLaunchCooperativeKernel, _ptsz, kernels,                                                   \
      (function, 1, 1, 1, 1, 1, 1, 0, stream, parameters))                                         \
    ONE(cuLaunchCooperativeKernelMultiDevice, kernels, (launches, 1, 0))                           \
    X(cuGraphLaunch, _ptsz, graphs, (exec, stream))                                                \
    X(cuGraphUpload, _ptsz, others, (exec, stream))                                                \
    X(cuLaunchHostFunc, _ptsz, host_functions, (stream, host_function, &host_calls))               \
    X(cuStreamAddCallback, _ptsz, host_functions, (stream, callback, &host_calls, 0))

#define COPY_LIST(X, ONE)                                                                          \
    X(cuMemcpy, _ptds, copies, (to, from, BYTES))                                                  \
    X(cuMemcpyPeer, _ptds, copies, (to, context, from, context, BYTES))                            \
    X(cuMemcpyHtoD_v2, _ptds, copies, (to, pattern, BYTES))                                        \
    X(cuMemcpyDtoH_v2, _ptds, copies, (pinned, from, BYTES))                                       \
    X(cuMemcpyDtoD_v2, _ptds, copies, (to, from, BYTES))                                           \
    X(cuMemcpyDtoA_v2, _ptds, copies, (array[1], 0, from, BYTES))                                  \
    X(cuMemcpyAtoD_v2, _ptds, copies, (to, array[0], 0, BYTES))                                    \
    X(cuMemcpyHtoA_v2, _ptds, copies, (array[1], 0, pattern, BYTES))                               \
    X(cuMemcpyAtoH_v2, _ptds, copies, (pinned, array[0], 0, BYTES))                                \
    X(cuMemcpyAtoA_v2, _ptds, copies, (array[1], 0, array[0], 0, BYTES))                           \
    X(cuMemcpy2D_v2, _ptds, copies, (&copy_2d))                                                    \
    X(cuMemcpy2DUnaligned_v2, _ptds, copies, (&copy_2d))                                           \
    X(cuMemcpy3D_v2, _ptds, copies, (&copy_3d))                                                    \
    X(cuMemcpy3DPeer, _ptds, copies, (&copy_peer))                                                 \
    X(cuMemcpyAsync, _ptsz, copies, (to, from, BYTES, stream))                                     \
    X(cuMemcpyPeerAsync, _ptsz, copies, (to, context, from, context, BYTES, stream))               \
    X(cuMemcpyHtoDAsync_v2, _ptsz, copies, (to, pattern, BYTES, stream))                           \
    X(cuMemcpyDtoHAsync_v2, _ptsz, copies, (pinned, from, BYTES, stream))                          \
    X(cuMemcpyDtoDAsync_v2, _ptsz, copies, (to, from, BYTES, stream))                              \
    X(cuMemcpyHtoAAsync_v2, _ptsz, copies, (array[1], 0, pattern, BYTES, stream))                  \
    X(cuMemcpyAtoHAsync_v2, _ptsz, copies, (pinned, array[0], 0, BYTES, stream))                   \
    X(cuMemcpy2DAsync_v2, _ptsz, copies, (&copy_2d, stream))                                       \
    X(cuMemcpy3DAsync_v2, _ptsz, copies, (&copy_3d, stream))                                       \
    X(cuMemcpy3DPeerAsync, _ptsz, copies, (&copy_peer, stream))                                    \
    X(cuMemcpyBatchAsync, _ptsz, copies,                                                           \
      (&to, &from, &bytes, 1, &attributes, &first, 1, NULL, stream))                               \
    X(cuMemcpyBatchAsync_v2, _ptsz, copies,                                                        \
      (&to, &from, &bytes, 1, &attributes, &first, 1, stream))                                     \
    X(cuMemcpy3DBatchAsync, _ptsz, copies, (1, &copy_batch, NULL, 0, stream))                      \
    X(cuMemcpy3DBatchAsync_v2, _ptsz, copies, (1, &copy_batch, 0, stream))

#define SET_LIST(X, ONE)                                                                           \
    X(cuMemsetD8_v2, _ptds, sets, (to, 1, BYTES))                                                  \
    X(cuMemsetD16_v2, _ptds, sets, (to, 2, BYTES / 2))                                             \
    X(cuMemsetD32_v2, _ptds, sets, (to, 3, BYTES / 4))                                             \
    X(cuMemsetD2D8_v2, _ptds, sets, (to, 64, 4, 32, 2))                                            \
    X(cuMemsetD2D16_v2, _ptds, sets, (to, 64, 5, 16, 2))                                           \
    X(cuMemsetD2D32_v2, _ptds, sets, (to, 64, 6, 8, 2))                                            \
    X(cuMemsetD8Async, _ptsz, sets, (to, 1, BYTES, stream))                                        \
    X(cuMemsetD16Async, _ptsz, sets, (to, 2, BYTES / 2, stream))                                   \
    X(cuMemsetD32Async, _ptsz, sets, (to, 3, BYTES / 4, stream))                                   \
    X(cuMemsetD2D8Async, _ptsz, sets, (to, 64, 4, 32, 2, stream))                                  \
    X(cuMemsetD2D16Async, _ptsz, sets, (to, 64, 5, 16, 2, stream))                                 \
    X(cuMemsetD2D32Async, _ptsz, sets, (to, 64, 6, 8, 2, stream))

#define OTHER_LIST(X, ONE)                                                                         \
    X(cuStreamWaitValue32, _ptsz, memory_operations, (stream, to, 0, 0))                           \
    X(cuStreamWaitValue32_v2, _ptsz, memory_operations, (stream, to, 0, 0))                        \
    X(cuStreamWaitValue64, _ptsz, memory_operations, (stream, to, 0, 0))                           \
    X(cuStreamWaitValue64_v2, _ptsz, memory_operations, (stream, to, 0, 0))                        \
    X(cuStreamWriteValue32, _ptsz, memory_operations, (stream, to, 7, 0))                          \
    X(cuStreamWriteValue32_v2, _ptsz, memory_operations, (stream, to, 8, 0))                       \
    X(cuStreamWriteValue64, _ptsz, memory_operations, (stream, to, 9, 0))                          \
    X(cuStreamWriteValue64_v2, _ptsz, memory_operations, (stream, to, 10, 0))                      \
    X(cuStreamBatchMemOp, _ptsz, memory_operations, (stream, 1, &operation, 0))                    \
    X(cuStreamBatchMemOp_v2, _ptsz, memory_operations, (stream, 1, &operation, 0))                 \
    X(cuMemPrefetchAsync, _ptsz, others, (managed, BYTES, 0, stream))                              \
    X(cuMemPrefetchAsync_v2, _ptsz, others, (managed, BYTES, place, 0, stream))                    \
    X(cuMemPrefetchBatchAsync, _ptsz, others, (&managed, &bytes, 1, &place, &first, 1, 0, stream)) \
    X(cuMemDiscardBatchAsync, _ptsz, others, (&managed, &bytes, 1, 0, stream))                     \
    X(cuMemDiscardAndPrefetchBatchAsync, _ptsz, others,                                            \
      (&managed, &bytes, 1, &place, &first, 1, 0, stream))                                         \
    X(cuMemBatchDecompressAsync, _ptsz, others, (&packed, 1, 0, NULL, stream))                     \
    X(cuStreamAttachMemAsync, _ptsz, others, (stream, managed, 0, CU_MEM_ATTACH_GLOBAL))           \
    X(cuMemAllocAsync, _ptsz, pool_operations, (&pooled, BYTES, stream))                           \
    X(cuMemAllocFromPoolAsync, _ptsz, pool_operations, (&pooled, BYTES, pool, stream))

#define SUBMISSION_LIST(X, ONE)                                                                    \
    LAUNCH_LIST(X, ONE) COPY_LIST(X, ONE) SET_LIST(X, ONE) OTHER_LIST(X, ONE)

#endif
