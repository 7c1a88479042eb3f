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
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphInstantiateWithParams)                                                                \
    X(cuGraphInstantiateWithParams_ptsz)                                                           \
    X(cuMemPoolCreate)                                                                             \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchKernel_ptsz)                                                                         \
    X(cuLaunchKernelEx)                                                                            \
    X(cuLaunchKernelEx_ptsz)                                                                       \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuLaunchCooperativeKernel_ptsz)                                                              \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphLaunch_ptsz)                                                                          \
    X(cuGraphUpload)                                                                               \
    X(cuGraphUpload_ptsz)                                                                          \
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
    X(cuPointerSetAttribute)

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
    X(cuDevicePrimaryCtxGetState)

/* Functions of a shared cudart on the hot path, or that change which context its calls mean. */
#define RUNTIME_LIST(X)                                                                            \
    X(cudaMalloc)                                                                                  \
    X(cudaFree)                                                                                    \
    X(cudaSetDevice)                                                                               \
    X(cudaDeviceReset)

#endif
