"""Passes memory to a process that multiprocessing begins, by its handle, and reads what that writes."""

import ctypes
import multiprocessing

MIB = 1 << 20
SIZE = 21 * MIB
cuda = ctypes.CDLL("libcuda.so.1")
Handle = ctypes.c_char * 64


class IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", Handle)]


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def begin():
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


def byte_of(pointer):
    """The one byte that all of it is."""
    data = (ctypes.c_char * SIZE)()
    call("cuMemcpyDtoH_v2", data, pointer, ctypes.c_size_t(SIZE))
    (value,) = set(data.raw)
    return value


def consumer(raw, answers):
    begin()
    handle, pointer = IpcHandle(), ctypes.c_uint64()
    ctypes.memmove(ctypes.byref(handle), raw, 64)
    call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, 1)
    seen = byte_of(pointer)
    call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(9), ctypes.c_size_t(SIZE))
    call("cuIpcCloseMemHandle", pointer)  # waits for that
    answers.put(seen)


def main():
    begin()
    for way in ("spawn", "forkserver"):
        processes = multiprocessing.get_context(way)
        pointer, handle = ctypes.c_uint64(), IpcHandle()
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(SIZE))
        call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(7), ctypes.c_size_t(SIZE))
        call("cuCtxSynchronize")
        call("cuIpcGetMemHandle", ctypes.byref(handle), pointer)
        answers = processes.Queue()
        child = processes.Process(target=consumer, args=(bytes(handle), answers))
        child.start()
        seen = answers.get(timeout=60)
        child.join()
        print(f"{way}: {seen}, then {byte_of(pointer)}", flush=True)
        call("cuMemFree_v2", pointer)


if __name__ == "__main__":
    main()
