"""The program to be started: where it is, and whether the library can be preloaded into it (ELF headers, `#!` lines)."""

import contextlib
import os
import re
import stat
import struct

from cachalot_command.common.tools import Failure, page_directory

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB = 1, 5
SHT_DYNSYM = 11
SCRIPTS_DEEP = 5  # the kernel's limit
BEGIN = 256  # bytes of a file that are looked at to know its kind
SHELL = "/bin/sh"


def find_program(name):
    """The file that execvp would execute for `name`. An empty PATH, or an empty part of it, means the current directory."""
    folders = [] if "/" in name else os.environ.get("PATH", os.defpath).split(":")
    candidates = [os.path.join(folder or ".", name) for folder in folders] or [name]
    there = [path for path in candidates if os.path.isfile(path) or (path == name and os.path.exists(path))]
    if not there:
        raise Failure(127, f"{name}: no such {'program in PATH' if folders else 'file'}")
    for path in there:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise Failure(126, f"{there[0]} is not executable")


class Elf:
    """The header of an ELF file: class, machine, and interpreter (None: statically linked)."""

    def __init__(self, data, file):
        if len(data) < 64:
            raise ValueError("cut off")
        self.bits = {1: 32, 2: 64}.get(data[4])
        order = {1: "<", 2: ">"}.get(data[5])
        if self.bits is None or order is None:
            raise ValueError("ELF class")
        self.kind, self.machine = struct.unpack_from(order + "HH", data, 16)
        wide = self.bits == 64
        offset = struct.unpack_from(order + ("Q" if wide else "I"), data, 32 if wide else 28)[0]
        size, count = struct.unpack_from(order + "HH", data, 54 if wide else 42)
        self.interpreter = None
        file.seek(offset)
        headers = file.read(size * count)
        for at in range(0, len(headers) - size + 1, size or 1):
            if struct.unpack_from(order + "I", headers, at)[0] == PT_INTERP:
                place, length = struct.unpack_from(order + ("Q16xQ" if wide else "I8xI"), headers,
                                                   at + (8 if wide else 4))
                file.seek(place)
                name = file.read(min(length, 4096)).rstrip(b"\0")
                self.interpreter = name.decode("utf-8", "replace")


def needed(path):
    """The libraries that a 64-bit program of this machine's byte order names; an empty list if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        offset, = struct.unpack_from("=Q", data, 32)
        size, count = struct.unpack_from("=HH", data, 54)
        if data[:5] != b"\x7fELF\x02":
            return []
        # type, flags, offset, address, physical address, bytes in the file
        segments = [struct.unpack_from("=IIQQQQ", data, offset + i * size) for i in range(count)]
        entries = [entry for kind, _, at, _, _, length in segments if kind == PT_DYNAMIC
                   for entry in struct.iter_unpack("=QQ", data[at:at + length // 16 * 16])]
        strings = [table - begin + at for tag, table in entries if tag == DT_STRTAB
                   for kind, _, at, begin, _, length in segments
                   if kind == PT_LOAD and begin <= table < begin + length]
        return [data[strings[0] + name:data.index(b"\0", strings[0] + name)].decode("utf-8", "replace")
                for tag, name in entries if tag == DT_NEEDED]
    except (OSError, struct.error, IndexError, ValueError):
        return []


def loaded_by(path):
    """{library: its file, or "" if it is not found} of all that the loader loads with a program; empty if it cannot say."""
    import subprocess  # only `doctor` needs it

    try:
        elf, _ = read_elf(path)
        if elf is None or not elf.interpreter:
            return {}
        environment = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": ""}  # lists, and does not run it
        done = subprocess.run([elf.interpreter, path], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", timeout=60, check=False)
    except (OSError, ValueError, struct.error, subprocess.TimeoutExpired):
        return {}
    found = re.findall(r"^\t(\S+) => (?:(/.*) \(0x|not found)", done.stdout, re.MULTILINE)
    return dict(found) if done.returncode in (0, 127) else {}


def is_shells(begin):
    """True for a text without an interpreter line, which execvp gives to the shell. Anything else is left to the kernel."""
    return not begin.startswith(b"\x7fELF") and b"\0" not in begin and not re.match(rb"#![ \t]*[^ \t\n]", begin)


def read_elf(path):
    """(Elf or None, first line or None) of a file."""
    with open(path, "rb") as file:
        data = file.read(BEGIN)
        if is_shells(data):
            return None, [SHELL]
        if data.startswith(b"#!"):
            return None, data[2:].split(b"\n")[0].decode("utf-8", "surrogateescape").split()
        if not data.startswith(b"\x7fELF"):
            return None, None
        return Elf(data, file), None


def by_shell(path, words):
    """(path, words) that execvp would execute: a text without an interpreter line is executed by the shell."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if is_shells(file.read(BEGIN)):
            return SHELL, [SHELL, path, *words[1:]]
    return path, words


def cannot_be_preloaded(path):
    return any(c.isspace() or c == ":" for c in path)


def safe_directory(path):
    """Makes `path` if needed. True if no other user can replace what lies in it."""
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (os.geteuid(), 0) and \
        (not status.st_mode & 0o022 or status.st_mode & stat.S_ISVTX)


def preloadable(library):
    """A path of the library that LD_PRELOAD can hold: the library's own, or that of a link beside the pages if its own has
    a blank."""
    if not cannot_be_preloaded(library):
        return library
    import hashlib  # rarely needed, and slow to load

    pages = page_directory()
    folder = os.path.join(pages, "lib-" + hashlib.sha256(os.fsencode(library)).hexdigest()[:16])
    link = os.path.join(folder, os.path.basename(library))
    if cannot_be_preloaded(link) or not safe_directory(pages) or not safe_directory(folder):
        raise Failure(125, f"the library's path `{library}` has a blank or a colon, which LD_PRELOAD cannot hold, and "
                           f"no link to it can be made in {pages}; name one with CACHALOT_LIBRARY")
    try:
        if not os.path.islink(link) or os.readlink(link) != library:
            fresh = f"{link}.{os.getpid()}"
            os.symlink(library, fresh)
            os.replace(fresh, link)
    except OSError as error:
        raise Failure(125, f"{link}: {error.strerror}") from error
    return link


def check_library(library):
    """The ELF header of the library."""
    try:
        elf, _ = read_elf(library)
    except (OSError, ValueError, struct.error) as error:
        raise Failure(125, f"{library} cannot be read: {error}") from error
    if elf is None:
        raise Failure(125, f"{library} is not a shared library")
    return elf


def has_capabilities(path):
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:  # there are none, or this user may not ask
        return False


def check_privileges(path):
    """Refuses a program that gains rights at its start, because the loader ignores LD_PRELOAD for it."""
    status = os.stat(path)
    gained = None
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        gained = "is setuid"
    elif status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and \
            status.st_gid != os.getgid():
        gained = "is setgid"
    elif os.getuid() != 0 and has_capabilities(path):
        gained = "has file capabilities"
    if gained:
        raise Failure(125, f"{path} {gained}: the loader ignores LD_PRELOAD for it; run a copy "
                           "without those rights (`cp` drops them)")


def check_elf(path, elf, library):
    if (elf.bits, elf.machine) != (library.bits, library.machine):
        raise Failure(125, f"{path} is for another architecture ({elf.bits} bits, machine "
                           f"{elf.machine}) than the library ({library.bits} bits, machine "
                           f"{library.machine}); build the library for it")
    is_loader = os.path.basename(os.path.realpath(path)).startswith(("ld-", "ld.so", "ld64"))
    if elf.interpreter is None and not is_loader:
        raise Failure(125, f"{path} is statically linked: nothing can be preloaded; link it "
                           "dynamically (libcudart may stay static)")
    if elf.interpreter and "ld-musl" in elf.interpreter:
        raise Failure(125, f"{path} uses the C library musl, the library needs glibc; run it in an "
                           "image with glibc")


def named_by_env(words):
    """PROGRAM in `#!/usr/bin/env PROGRAM`, or None."""
    if os.path.basename(words[0]) != "env":
        return None
    rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    with contextlib.suppress(Failure):
        return find_program(rest[0]) if rest else None
    return None


def check_program(path, library, depth=0):
    """Raises Failure if the preload cannot work in `path`, or in its interpreter if it is a script."""
    if not os.path.isfile(path):  # opening a pipe would block
        raise Failure(126, f"{path} is not a regular file, and cannot be executed")
    try:
        elf, script = read_elf(path)
    except PermissionError:
        return  # executable but not readable: it cannot be judged
    except (OSError, ValueError, struct.error) as error:
        raise Failure(126, f"{path} cannot be executed: {error}") from error
    if script:
        if depth >= SCRIPTS_DEEP or not os.path.exists(script[0]):
            raise Failure(126, f"{path}: its interpreter {script[0]} does not exist"
                               if depth < SCRIPTS_DEEP else f"{path}: too many interpreters")
        check_program(script[0], library, depth + 1)
        inner = named_by_env(script)
        if inner:
            check_program(inner, library, depth + 1)
        return
    check_privileges(path)
    if elf:
        check_elf(path, elf, library)


def exported(data, names):
    """True if the 64-bit object of this machine's byte order defines one of these dynamic symbols."""
    offset, = struct.unpack_from("=Q", data, 40)
    size, count = struct.unpack_from("=HH", data, 58)
    # name, type, flags, address, offset, size, link
    sections = [struct.unpack_from("=IIQQQQI", data, offset + i * size) for i in range(count)]
    for _, kind, _, _, at, length, link in sections:
        strings = data[sections[link][4]:][:sections[link][5]] if kind == SHT_DYNSYM else b""
        for name, _, _, section, _, _ in struct.iter_unpack("=IBBHQQ", data[at:at + length // 24 * 24]) if strings else ():
            if section and strings[name:strings.find(b"\0", name)] in names:
                return True
    return False


def library_file(name):
    """The file that the loader takes for an entry of LD_PRELOAD; None if it is not found here."""
    parts = (f"lib/{os.uname().machine}-linux-gnu", "lib64", "lib")
    paths = [re.sub(r"\$LIB\b|\$\{LIB\}", part, name) for part in parts]
    if "/" not in name:
        folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
        paths = [os.path.join(folder, name) for folder in (*folders, *(root + part for part in parts for root in ("/", "/usr/")))]
    return next(filter(os.path.isfile, paths), None)


def hooks(name):
    """True if the library defines what we hook: it has its place before us. One that hooks `dlsym` hands its functions out."""
    if CUDA.match(os.path.basename(name)):
        return False
    try:
        with open(library_file(name) or "", "rb") as file:
            data = file.read()
        return data[:5] == b"\x7fELF\x02" and (exported(data, (b"cudaMalloc", b"cuMemAlloc_v2")) or
                                                (b"cuMemAlloc" in data and exported(data, (b"dlsym",))))
    except (OSError, struct.error, IndexError, ValueError):
        return False


def preloaded_for_all():
    """The libraries that the loader preloads into every program, after those of LD_PRELOAD."""
    try:
        with open("/etc/ld.so.preload", encoding="utf-8", errors="surrogateescape") as file:
            return [name for line in file for name in re.split("[ :\t\n]+", line.partition("#")[0]) if name]
    except OSError:
        return []


CUDA = re.compile(r"libcuda\.so|libcudart")
SANITIZER = re.compile(r"lib(clang_rt\.)?(a|t|m|hwa|l)san")


def others_in(existing, library):
    """The entries of a value of LD_PRELOAD except the library itself, each once."""
    return [name for name in dict.fromkeys(re.split("[ :]+", existing)) if name and os.path.basename(name) != os.path.basename(library)]


def before_us(existing, library):
    """The preloads that hook CUDA's allocation, which would get no call behind the library."""
    return [name for name in others_in(" ".join([existing, *preloaded_for_all()]), library) if hooks(name)]


def preload(library, existing, program):
    """The value of LD_PRELOAD: sanitizers first, because they must be (also those that the program is linked to), then hooks,
    then the library, then the rest."""
    own = [name for name in needed(program) if SANITIZER.match(name)]
    others = others_in(" ".join([existing, *own]), library)
    first = [name for name in others if SANITIZER.search(os.path.basename(name))] + before_us(existing, library)
    return ":".join([*dict.fromkeys([*first, library, *others])])
