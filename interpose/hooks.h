/* The one list of hooked driver functions, and the list of those that we call ourselves.
 *
 * Adding a hook is adding a line here and a function of that name and of cuda.h's prototype (the
 * compiler checks it) to one of the exports_*.c files. Everything else (exported symbols, table of
 * real functions, substitution in dlsym and cuGetProcAddress, the check of the exports) follows
 * from the list.
 */
#ifndef CACHALOT_INTERPOSE_HOOKS_H
#define CACHALOT_INTERPOSE_HOOKS_H

#define HOOK_LIST(X)                                                                               \
    X(cuInit)                                                                                      \
    X(cuGetProcAddress)                                                                            \
    X(cuGetProcAddress_v2)                                                                         \
    X(cuMemAlloc_v2) /* served */                                                                  \
    X(cuMemFree_v2)                                                                                \
    X(cuMemAllocPitch_v2)                                                                          \
    X(cuMemGetInfo_v2)                                                                             \
    X(cuMemAllocAsync) /* passed and counted, released for when out of memory */                   \
    X(cuMemAllocAsync_ptsz)                                                                        \
    X(cuMemAllocFromPoolAsync)                                                                     \
    X(cuMemAllocFromPoolAsync_ptsz)                                                                \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemFreeAsync_ptsz)                                                                         \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemAllocHost_v2)                                                                           \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemHostRegister_v2)                                                                        \
    X(cuArrayCreate_v2)                                                                            \
    X(cuArray3DCreate_v2)                                                                          \
    X(cuMipmappedArrayCreate)                                                                      \
    X(cuArrayDestroy)                                                                              \
    X(cuMipmappedArrayDestroy)                                                                     \
    X(cuMemCreate)                                                                                 \
    X(cuMemRelease)                                                                                \
    X(cuMemImportFromShareableHandle)                                                              \
    X(cuIpcOpenMemHandle)                                                                          \
    X(cuIpcOpenMemHandle_v2)                                                                       \
    X(cuIpcCloseMemHandle)                                                                         \
    X(cuImportExternalMemory)                                                                      \
    X(cuDestroyExternalMemory)                                                                     \
    X(cuMemPoolImportPointer)                                                                      \
    X(cuCtxCreate) /* retried when out of memory */                                                \
    X(cuCtxCreate_v2)                                                                              \
    X(cuCtxCreate_v3)                                                                              \
    X(cuCtxCreate_v4)                                                                              \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuModuleLoad)                                                                                \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleLoadDataEx)                                                                          \
    X(cuModuleLoadFatBinary)                                                                       \
    X(cuLibraryLoadData)                                                                           \
    X(cuLibraryLoadFromFile)                                                                       \
    X(cuStreamCreate)                                                                              \
    X(cuStreamCreateWithPriority)                                                                  \
    X(cuMemPoolCreate)                                                                             \
    X(cuModuleGetFunction)                                                                         \
    X(cuLibraryGetKernel)                                                                          \
    X(cuLibraryGetModule)                                                                          \
    X(cuKernelGetFunction)                                                                         \
    X(cuFuncLoad)                                                                                  \
    X(cuCtxSetLimit)                                                                               \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemMap)                                                                                    \
    X(cuMemSetAccess)                                                                              \
    X(cuMulticastCreate)                                                                           \
    X(cuGreenCtxCreate)                                                                            \
    X(cuCtxDestroy) /* reacted to */                                                               \
    X(cuCtxDestroy_v2)                                                                             \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuDevicePrimaryCtxReset)                                                                     \
    X(cuDevicePrimaryCtxReset_v2)                                                                  \
    X(cuCtxFromGreenCtx)                                                                           \
    X(cuGreenCtxDestroy)                                                                           \
    X(cuStreamBeginCapture)                                                                        \
    X(cuStreamBeginCapture_ptsz)                                                                   \
    X(cuStreamBeginCapture_v2)                                                                     \
    X(cuStreamBeginCapture_v2_ptsz)                                                                \
    X(cuStreamBeginCaptureToGraph)                                                                 \
    X(cuStreamBeginCaptureToGraph_ptsz)                                                            \
    X(cuStreamEndCapture)                                                                          \
    X(cuStreamEndCapture_ptsz)                                                                     \
    X(cuStreamDestroy_v2)                                                                          \
    X(cuIpcGetMemHandle)                                                                           \
    X(cuMemGetHandleForAddressRange)                                                               \
    X(cuPointerSetAttribute)                                                                       \
    X(cuLaunchKernel) /* submissions: launches */                                                  \
    X(cuLaunchKernel_ptsz)                                                                         \
    X(cuLaunchKernelEx)                                                                            \
    X(cuLaunchKernelEx_ptsz)                                                                       \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuLaunchCooperativeKernel_ptsz)                                                              \
    X(cuLaunchCooperativeKernelMultiDevice)                                                        \
    X(cuLaunch)                                                                                    \
    X(cuLaunchGrid)                                                                                \
    X(cuLaunchGridAsync)                                                                           \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphLaunch_ptsz)                                                                          \
    X(cuGraphUpload)                                                                               \
    X(cuGraphUpload_ptsz)                                                                          \
    X(cuLaunchHostFunc)                                                                            \
    X(cuLaunchHostFunc_ptsz)                                                                       \
    X(cuStreamAddCallback)                                                                         \
    X(cuStreamAddCallback_ptsz)                                                                    \
    X(cuMemcpy) /* copies */                                                                       \
    X(cuMemcpy_ptds)                                                                               \
    X(cuMemcpyPeer)                                                                                \
    X(cuMemcpyPeer_ptds)                                                                           \
    X(cuMemcpyHtoD_v2)                                                                             \
    X(cuMemcpyHtoD_v2_ptds)                                                                        \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuMemcpyDtoH_v2_ptds)                                                                        \
    X(cuMemcpyDtoD_v2)                                                                             \
    X(cuMemcpyDtoD_v2_ptds)                                                                        \
    X(cuMemcpyDtoA_v2)                                                                             \
    X(cuMemcpyDtoA_v2_ptds)                                                                        \
    X(cuMemcpyAtoD_v2)                                                                             \
    X(cuMemcpyAtoD_v2_ptds)                                                                        \
    X(cuMemcpyHtoA_v2)                                                                             \
    X(cuMemcpyHtoA_v2_ptds)                                                                        \
    X(cuMemcpyAtoH_v2)                                                                             \
    X(cuMemcpyAtoH_v2_ptds)                                                                        \
    X(cuMemcpyAtoA_v2)                                                                             \
    X(cuMemcpyAtoA_v2_ptds)                                                                        \
    X(cuMemcpy2D_v2)                                                                               \
    X(cuMemcpy2D_v2_ptds)                                                                          \
    X(cuMemcpy2DUnaligned_v2)                                                                      \
    X(cuMemcpy2DUnaligned_v2_ptds)                                                                 \
    X(cuMemcpy3D_v2)                                                                               \
    X(cuMemcpy3D_v2_ptds)                                                                          \
    X(cuMemcpy3DPeer)                                                                              \
    X(cuMemcpy3DPeer_ptds)                                                                         \
    X(cuMemcpyAsync) /* copies in a stream */                                                      \
    X(cuMemcpyAsync_ptsz)                                                                          \
    X(cuMemcpyPeerAsync)                                                                           \
    X(cuMemcpyPeerAsync_ptsz)                                                                      \
    X(cuMemcpyHtoDAsync_v2)                                                                        \
    X(cuMemcpyHtoDAsync_v2_ptsz)                                                                   \
    X(cuMemcpyDtoHAsync_v2)                                                                        \
    X(cuMemcpyDtoHAsync_v2_ptsz)                                                                   \
    X(cuMemcpyDtoDAsync_v2)                                                                        \
    X(cuMemcpyDtoDAsync_v2_ptsz)                                                                   \
    X(cuMemcpyHtoAAsync_v2)                                                                        \
    X(cuMemcpyHtoAAsync_v2_ptsz)                                                                   \
    X(cuMemcpyAtoHAsync_v2)                                                                        \
    X(cuMemcpyAtoHAsync_v2_ptsz)                                                                   \
    X(cuMemcpy2DAsync_v2)                                                                          \
    X(cuMemcpy2DAsync_v2_ptsz)                                                                     \
    X(cuMemcpy3DAsync_v2)                                                                          \
    X(cuMemcpy3DAsync_v2_ptsz)                                                                     \
    X(cuMemcpy3DPeerAsync)                                                                         \
    X(cuMemcpy3DPeerAsync_ptsz)                                                                    \
    X(cuMemcpyBatchAsync)                                                                          \
    X(cuMemcpyBatchAsync_ptsz)                                                                     \
    X(cuMemcpyBatchAsync_v2)                                                                       \
    X(cuMemcpyBatchAsync_v2_ptsz)                                                                  \
    X(cuMemcpy3DBatchAsync)                                                                        \
    X(cuMemcpy3DBatchAsync_ptsz)                                                                   \
    X(cuMemcpy3DBatchAsync_v2)                                                                     \
    X(cuMemcpy3DBatchAsync_v2_ptsz)                                                                \
    X(cuMemsetD8_v2) /* sets */                                                                    \
    X(cuMemsetD8_v2_ptds)                                                                          \
    X(cuMemsetD16_v2)                                                                              \
    X(cuMemsetD16_v2_ptds)                                                                         \
    X(cuMemsetD32_v2)                                                                              \
    X(cuMemsetD32_v2_ptds)                                                                         \
    X(cuMemsetD2D8_v2)                                                                             \
    X(cuMemsetD2D8_v2_ptds)                                                                        \
    X(cuMemsetD2D16_v2)                                                                            \
    X(cuMemsetD2D16_v2_ptds)                                                                       \
    X(cuMemsetD2D32_v2)                                                                            \
    X(cuMemsetD2D32_v2_ptds)                                                                       \
    X(cuMemsetD8Async)                                                                             \
    X(cuMemsetD8Async_ptsz)                                                                        \
    X(cuMemsetD16Async)                                                                            \
    X(cuMemsetD16Async_ptsz)                                                                       \
    X(cuMemsetD32Async)                                                                            \
    X(cuMemsetD32Async_ptsz)                                                                       \
    X(cuMemsetD2D8Async)                                                                           \
    X(cuMemsetD2D8Async_ptsz)                                                                      \
    X(cuMemsetD2D16Async)                                                                          \
    X(cuMemsetD2D16Async_ptsz)                                                                     \
    X(cuMemsetD2D32Async)                                                                          \
    X(cuMemsetD2D32Async_ptsz)                                                                     \
    X(cuMemcpyHtoD) /* of the 32-bit era */                                                        \
    X(cuMemcpyDtoH)                                                                                \
    X(cuMemcpyDtoD)                                                                                \
    X(cuMemcpyDtoA)                                                                                \
    X(cuMemcpyAtoD)                                                                                \
    X(cuMemcpyHtoA)                                                                                \
    X(cuMemcpyAtoH)                                                                                \
    X(cuMemcpyAtoA)                                                                                \
    X(cuMemcpy2D)                                                                                  \
    X(cuMemcpy2DUnaligned)                                                                         \
    X(cuMemcpy3D)                                                                                  \
    X(cuMemcpyHtoDAsync)                                                                           \
    X(cuMemcpyDtoHAsync)                                                                           \
    X(cuMemcpyDtoDAsync)                                                                           \
    X(cuMemcpyHtoAAsync)                                                                           \
    X(cuMemcpyAtoHAsync)                                                                           \
    X(cuMemcpy2DAsync)                                                                             \
    X(cuMemcpy3DAsync)                                                                             \
    X(cuMemsetD8)                                                                                  \
    X(cuMemsetD16)                                                                                 \
    X(cuMemsetD32)                                                                                 \
    X(cuMemsetD2D8)                                                                                \
    X(cuMemsetD2D16)                                                                               \
    X(cuMemsetD2D32)                                                                               \
    X(cuStreamWaitValue32) /* other work */                                                        \
    X(cuStreamWaitValue32_ptsz)                                                                    \
    X(cuStreamWaitValue32_v2)                                                                      \
    X(cuStreamWaitValue32_v2_ptsz)                                                                 \
    X(cuStreamWaitValue64)                                                                         \
    X(cuStreamWaitValue64_ptsz)                                                                    \
    X(cuStreamWaitValue64_v2)                                                                      \
    X(cuStreamWaitValue64_v2_ptsz)                                                                 \
    X(cuStreamWriteValue32)                                                                        \
    X(cuStreamWriteValue32_ptsz)                                                                   \
    X(cuStreamWriteValue32_v2)                                                                     \
    X(cuStreamWriteValue32_v2_ptsz)                                                                \
    X(cuStreamWriteValue64)                                                                        \
    X(cuStreamWriteValue64_ptsz)                                                                   \
    X(cuStreamWriteValue64_v2)                                                                     \
    X(cuStreamWriteValue64_v2_ptsz)                                                                \
    X(cuStreamBatchMemOp)                                                                          \
    X(cuStreamBatchMemOp_ptsz)                                                                     \
    X(cuStreamBatchMemOp_v2)                                                                       \
    X(cuStreamBatchMemOp_v2_ptsz)                                                                  \
    X(cuMemPrefetchAsync)                                                                          \
    X(cuMemPrefetchAsync_ptsz)                                                                     \
    X(cuMemPrefetchAsync_v2)                                                                       \
    X(cuMemPrefetchAsync_v2_ptsz)                                                                  \
    X(cuMemPrefetchBatchAsync)                                                                     \
    X(cuMemPrefetchBatchAsync_ptsz)                                                                \
    X(cuMemDiscardBatchAsync)                                                                      \
    X(cuMemDiscardBatchAsync_ptsz)                                                                 \
    X(cuMemDiscardAndPrefetchBatchAsync)                                                           \
    X(cuMemDiscardAndPrefetchBatchAsync_ptsz)                                                      \
    X(cuMemBatchDecompressAsync)                                                                   \
    X(cuMemBatchDecompressAsync_ptsz)                                                              \
    X(cuMemMapArrayAsync)                                                                          \
    X(cuMemMapArrayAsync_ptsz)                                                                     \
    X(cuStreamAttachMemAsync)                                                                      \
    X(cuStreamAttachMemAsync_ptsz)                                                                 \
    X(cuSignalExternalSemaphoresAsync)                                                             \
    X(cuSignalExternalSemaphoresAsync_ptsz)                                                        \
    X(cuWaitExternalSemaphoresAsync)                                                               \
    X(cuWaitExternalSemaphoresAsync_ptsz)                                                          \
    X(cuGraphicsMapResources)                                                                      \
    X(cuGraphicsMapResources_ptsz)                                                                 \
    X(cuGraphicsUnmapResources)                                                                    \
    X(cuGraphicsUnmapResources_ptsz)                                                               \
    X(cuGraphInstantiate) /* graphs: what a launch of them does */                                 \
    X(cuGraphInstantiate_v2)                                                                       \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphInstantiateWithParams)                                                                \
    X(cuGraphInstantiateWithParams_ptsz)                                                           \
    X(cuGraphExecUpdate)                                                                           \
    X(cuGraphExecUpdate_v2)                                                                        \
    X(cuGraphExecMemcpyNodeSetParams)                                                              \
    X(cuGraphExecChildGraphNodeSetParams)                                                          \
    X(cuGraphExecNodeSetParams)                                                                    \
    X(cuGraphExecDestroy)

/* Called by us, never replaced. */
#define CALL_LIST(X)                                                                               \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxPushCurrent_v2)                                                                         \
    X(cuCtxPopCurrent_v2)                                                                          \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxSynchronize)                                                                            \
    X(cuCtxRecordEvent)                                                                            \
    X(cuEventCreate)                                                                               \
    X(cuEventQuery)                                                                                \
    X(cuEventSynchronize)                                                                          \
    X(cuEventDestroy_v2)                                                                           \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuStreamIsCapturing)                                                                         \
    X(cuStreamIsCapturing_ptsz)                                                                    \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDeviceGetUuid_v2)                                                                          \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceTotalMem_v2)                                                                         \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuPointerGetAttributes)                                                                      \
    X(cuGraphGetNodes)                                                                             \
    X(cuGraphNodeGetType)                                                                          \
    X(cuGraphMemcpyNodeGetParams)                                                                  \
    X(cuGraphChildGraphNodeGetGraph)

/* Functions of a shared cudart on the hot path, or that change which context its calls mean. */
#define RUNTIME_LIST(X)                                                                            \
    X(cudaMalloc)                                                                                  \
    X(cudaFree)                                                                                    \
    X(cudaSetDevice)                                                                               \
    X(cudaDeviceReset)

#endif
