"""How commands write files: as a whole where a file can be replaced, else into what is there."""

import errno
import os
import re
import shutil
import stat
import tempfile
import time

from cachalot_command.common.tools import Failure

DESCRIPTOR = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd/(\d{1,9})")  # what /dev/stdout and /dev/fd/3 lead to
NOT_REPLACED = (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EROFS, errno.EXDEV)  # the file is mounted itself, or its folder is not writable
LINKS_MOST = 40
READER_TRIES, READER_TRY_S = 50, 0.1


def place_of(path):
    """The path behind links. An open descriptor is kept as such: its file may have no name, or other writers."""
    if path == "-":
        return f"/proc/{os.getpid()}/fd/1"
    for _ in range(LINKS_MOST):
        folder, name = os.path.split(path)
        path = os.path.join(os.path.realpath(folder), name)
        if DESCRIPTOR.fullmatch(path) or not os.path.islink(path):
            break
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return path


def open_once_read(place, flags):
    """Opens a pipe for writing; the wait for a reader is bounded."""
    for left in reversed(range(READER_TRIES)):
        try:
            return os.open(place, flags | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(place).st_mode):
                raise
            if not left:
                raise OSError(errno.ENXIO, "it is a pipe that nobody reads") from error
        time.sleep(READER_TRY_S)


def open_as_it_is(place):
    descriptor = DESCRIPTOR.fullmatch(place)
    if descriptor and int(descriptor[1]) == os.getpid():
        return os.fdopen(os.dup(int(descriptor[2])), "wb")
    file = open_once_read(place, os.O_WRONLY | os.O_NOCTTY | (os.O_APPEND if descriptor else os.O_TRUNC))
    os.set_blocking(file, True)
    return os.fdopen(file, "wb")


def replace(place, fill):
    """Replaces the file in one step, because collectors read it at any time."""
    with tempfile.NamedTemporaryFile(prefix=".cachalot-", dir=os.path.dirname(place), delete=False) as file:
        try:
            fill(file)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
            file.flush()
            os.replace(file.name, place)
        except BaseException:
            os.unlink(file.name)
            raise


def probe(place):
    """Raises the OSError that `write` would raise because of the place."""
    exists = os.path.exists(place)
    if os.path.isdir(place):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if DESCRIPTOR.fullmatch(place) or (exists and not os.path.isfile(place)):
        return
    try:
        tempfile.TemporaryFile(dir=os.path.dirname(place)).close()
    except OSError as error:
        if error.errno not in NOT_REPLACED or not exists:
            raise
        os.close(os.open(place, os.O_WRONLY))


def refuse(where, path):
    """Refuses, before a program starts, a file that could not be written after it."""
    place = place_of(path)
    try:
        probe(place)
    except OSError as error:
        raise Failure(125, f"{where}: {path} cannot be written: {error.strerror}") from error


def write(path, fill):
    """Has `fill` write the content of `path`; - is standard output. Raises OSError."""
    place = place_of(path)
    if not DESCRIPTOR.fullmatch(place) and (os.path.isfile(place) or not os.path.lexists(place)):
        try:
            return replace(place, fill)
        except OSError as error:
            if error.errno not in NOT_REPLACED or not os.path.exists(place):
                raise
    with tempfile.TemporaryFile() as made:  # the target is not truncated before the content exists
        fill(made)
        made.seek(0)
        with open_as_it_is(place) as file:
            shutil.copyfileobj(made, file)


def make(path, fill):
    """Like `write`, with an error that names the file. For commands that have no other task."""
    try:
        write(path, fill)
    except OSError as error:
        if path == "-":
            raise  # main reports errors of standard output
        raise Failure(1, f"{path}: {error.strerror}") from error


def refuse_overwriting(source, paths):
    """Refuses to write over the source, or two outputs into one file."""
    written = [os.path.realpath(path) for path in paths if path not in ("-", os.devnull)]
    if os.path.realpath(source) in written:
        raise Failure(2, f"{source} would be overwritten by what is made of it")
    if len(set(written)) < len(written):
        raise Failure(2, "two of them would go to the same file")
