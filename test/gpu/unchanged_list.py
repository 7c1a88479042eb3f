"""Programs that nobody here wrote, for cases_unchanged.py: where each comes from and what it does.

A sample is one folder of NVIDIA's cuda-samples (or NCCL's examples), unmodified: DIR/Samples/NAME and
DIR/Common, as Debian's package nvidia-cuda-samples has them; or DIR/Built/TOOLKIT/NAME, built elsewhere
with another toolkit, whose run-time is tried too. A script is a Python program in DIR/Python (CuPy's
examples/stream, Triton's tutorials) or a module that is installed.
"""


def sample(name, covers, *flags, kernel=None, makes=None, common=(), arguments=(), at_once=False):
    """One folder; `kernel` is compiled by itself to the file `makes` that the program loads; at_once: several
    threads or processes print, whoever comes first."""
    return {"name": name, "covers": covers, "flags": flags, "kernel": kernel, "makes": makes,
            "common": common, "arguments": arguments, "at_once": at_once}


def script(name, covers, *command, **environment):
    """A command for Python; a word that ends in .py is a file of DIR/Python."""
    return {"name": name, "covers": covers, "command": command, "environment": environment}


def tool(name, covers, sample_name, *command, loads=None):
    """A tool with a sample under it; `loads` is its option to load us into the program."""
    return {"name": name, "covers": covers, "sample": sample_name, "command": command,
            "loads": loads}


SAMPLES = [
    sample("vectorAdd", "allocation"),
    sample("vectorAddDrv", "allocation, driver API", "-lcuda",
           kernel="vectorAdd_kernel.cu", makes="vectorAdd_kernel64.fatbin"),
    sample("simpleDrvRuntime", "both APIs in one program", "-lcuda",
           kernel="vectorAdd_kernel.cu", makes="vectorAdd_kernel64.fatbin"),
    sample("matrixMulDrv", "driver API, modules", "-lcuda",
           kernel="matrixMul_kernel.cu", makes="matrixMul_kernel64.fatbin"),
    sample("matrixMul", "streams, events"),
    sample("cppIntegration", "several sources"),
    sample("bandwidthTest", "pinned and plain copies"),
    sample("alignedTypes", "large copies"),
    sample("mergeSort", "many buffers"),
    sample("sortingNetworks", "many launches"),
    sample("reduction", "many launches"),
    sample("scan", "scratch memory"),
    sample("histogram", "scratch memory"),
    sample("convolutionSeparable", "constant memory"),
    sample("radixSortThrust", "Thrust's temporary buffers"),
    sample("lineOfSight", "Thrust, textures"),
    sample("shfl_scan", "managed and host memory"),
    sample("simpleStreams", "streams, pinned and registered host memory"),
    sample("simpleMultiCopy", "streams, copies both ways"),
    sample("simpleHyperQ", "32 streams"),
    sample("concurrentKernels", "streams, events"),
    sample("asyncAPI", "events, asynchronous copies"),
    sample("StreamPriorities", "stream priorities"),
    sample("simpleCallback", "host functions, threads"),
    sample("simpleIPC", "IPC between processes", "-lcuda", common=["helper_multiprocess.cpp"], at_once=True),
    sample("simpleCudaGraphs", "graphs"),
    sample("graphMemoryNodes", "graphs that allocate"),
    sample("jacobiCudaGraphs", "graphs, updated while they run"),
    sample("graphMemoryFootprint", "graphs that allocate, trimmed"),
    sample("graphConditionalNodes", "graphs with conditions"),
    sample("streamOrderedAllocation", "cudaMallocAsync"),
    sample("streamOrderedAllocationIPC", "cudaMallocAsync pools between processes", "-lcuda",
           common=["helper_multiprocess.cpp"], at_once=True),
    sample("streamOrderedAllocationP2P", "cudaMallocAsync, two GPUs"),
    sample("simpleZeroCopy", "zero-copy"),
    sample("systemWideAtomics", "managed memory, atomics"),
    sample("conjugateGradientUM", "managed memory, cuBLAS, cuSPARSE", "-lcublas", "-lcusparse"),
    sample("vectorAddMMAP", "cuMemCreate and cuMemMap", "-lcuda",
           kernel="vectorAdd_kernel.cu", makes="vectorAdd_kernel64.fatbin"),
    sample("memMapIPCDrv", "cuMemCreate between processes", "-lcuda",
           kernel="memMapIpc_kernel.cu", makes="memMapIpc_kernel64.ptx",
           common=["helper_multiprocess.cpp"], at_once=True),
    sample("simplePitchLinearTexture", "cudaMallocPitch, arrays"),
    sample("simpleLayeredTexture", "cudaMalloc3DArray"),
    sample("simpleCubemapTexture", "cudaMalloc3DArray, cube maps"),
    sample("reductionMultiBlockCG", "cooperative launch"),
    sample("conjugateGradientMultiBlockCG", "cooperative launch, managed memory", "-rdc=true"),
    sample("binaryPartitionCG", "cooperative groups"),
    sample("warpAggregatedAtomicsCG", "cooperative groups, atomics"),
    sample("cdpSimpleQuicksort", "kernels that launch kernels", "-rdc=true", "-lcudadevrt"),
    sample("cdpQuadtree", "kernels that launch kernels", "-rdc=true", "-lcudadevrt"),
    sample("newdelete", "new and delete on the device", "-rdc=true"),
    sample("simpleSeparateCompilation", "device linking", "-rdc=true"),
    sample("simpleAssert", "a kernel that fails, the context with it"),
    sample("simpleAtomicIntrinsics", "atomics"),
    sample("threadFenceReduction", "atomics, fences"),
    sample("cudaOpenMP", "OpenMP threads", "-Xcompiler", "-fopenmp", at_once=True),
    sample("threadMigration", "one context, many threads", "-lcuda",
           kernel="threadMigration_kernel.cu", makes="threadMigration_kernel64.fatbin"),
    sample("simpleP2P", "peer to peer, two GPUs"),
    sample("conjugateGradientMultiDeviceCG", "cooperative launch on every GPU", "-rdc=true", "-lcudadevrt"),
    sample("simpleMultiGPU", "every GPU"),
    sample("simpleCUBLAS", "cuBLAS", "-lcublas"),
    sample("batchCUBLAS", "cuBLAS, arrays of pointers", "-lcublas"),
    sample("matrixMulCUBLAS", "cuBLAS", "-lcublas"),
    sample("conjugateGradient", "cuSPARSE", "-lcublas", "-lcusparse"),
    sample("conjugateGradientPrecond", "cuSPARSE", "-lcublas", "-lcusparse"),
    sample("cuSolverDn_LinearSolver", "cuSOLVER", "-lcusolver", "-lcublas", "-lcusparse"),
    sample("cuSolverSp_LinearSolver", "cuSOLVER, sparse", "-lcusolver", "-lcusparse"),
    sample("cuSolverRf", "cuSOLVER", "-lcusolver", "-lcublas", "-lcusparse"),
    sample("MersenneTwisterGP11213", "cuRAND", "-lcurand"),
    sample("ncclRing", "NCCL, every GPU", "-lnccl"),
]

CUDADRV = [f"numba.cuda.tests.cudadrv.test_{name}" for name in (
    "array_attr", "context_stack", "cuda_array_slicing", "cuda_auto_context", "cuda_devicerecord",
    "cuda_memory", "cuda_ndarray", "deallocations", "events", "host_alloc",
    "pinned", "reset_device", "streams")]
CUDAPY = [f"numba.cuda.tests.cudapy.test_{name}" for name in (
    "device_array_capture", "ipc", "matmul", "montecarlo", "multigpu", "multithreads", "stream_api")]
OPTAX = [f"optax.{name}_test" for name in (
    "_src.update", "contrib._sam", "losses._smoothing", "transforms._adding", "tree_utils._random")]
PLATFORM = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
ACCELERATE = "accelerate.test_utils.scripts."
RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "gpu", "-m")

SCRIPTS = [
    script("numba driver tests", "Numba's own tests: allocation, pinned, streams, contexts, reset",
           "-m", "unittest", "-v", *CUDADRV),
    script("numba kernel tests", "Numba's own tests: streams, threads, processes, IPC",
           "-m", "unittest", "-v", *CUDAPY),
    script("optax tests", "JAX: Optax's own tests, no memory taken ahead", "-m", "unittest", "-v", *OPTAX,
           **PLATFORM),
    script("cupy memcpy", "CuPy: streams, pinned memory", "cupy_memcpy.py"),
    script("cupy map_reduce", "CuPy: pool, eleven streams", "map_reduce.py"),
    script("cupy cufft", "CuPy: cuFFT on streams", "cufft.py"),
    script("cupy cusolver", "CuPy: cuSOLVER on streams", "cusolver.py"),
    script("triton dependent launch", "Triton: programmatic launches, graphs; no cache",
           "11-programmatic-dependent-launch.py", **NO_CACHE, MPLBACKEND="Agg"),
    script("accelerate test_script, a process for each GPU", "PyTorch: NCCL, training, no cache",
           *RANKS, ACCELERATE + "test_script", **NO_CACHE),
    script("accelerate test_ops, a process for each GPU", "PyTorch: NCCL, no cache", *RANKS,
           ACCELERATE + "test_ops", **NO_CACHE),
    script("accelerate test_sync, a process for each GPU", "PyTorch: NCCL, DDP, own cache", *RANKS,
           ACCELERATE + "test_sync"),
    script("PyTorch profiler", "PyTorch: kernels, counts and memory that it shows, no cache",
           "torch_profiled.py", **NO_CACHE),
    script("torch spectral_ops_fuzz_test", "PyTorch: its benchmark of cuFFT, no cache",
           "-m", "torch.utils.benchmark.examples.spectral_ops_fuzz_test", "--device", "cuda",
           "--bench", "fft_real", "--samples", "2", **NO_CACHE),
]

TOOLS = [
    tool("compute-sanitizer memcheck", "matrixMul under it", "matrixMul", "compute-sanitizer",
         "--tool", "memcheck", "--error-exitcode", "99", loads="--preload-library"),
    tool("Nsight Compute", "simpleStreams under it", "simpleStreams", "ncu",
         "--clock-control", "none", "--launch-count", "20", "--metrics",
         "launch__grid_size,launch__block_size,smsp__inst_executed.sum", loads="--preload-library"),
]
