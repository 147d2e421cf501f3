"""What faultrun is given on its standard input: no worker gets it, for a restart could not read it again."""

import array
import fcntl
import os
import stat
import termios

UNREAD = "standard input is not handed to workers, as a restart could not read it again: name a file instead"


def is_given(descriptor: int = 0) -> bool:
    """Whether something can be read there now: bytes in a pipe, or a file that is not at its end."""
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            return os.lseek(descriptor, 0, os.SEEK_CUR) < found.st_size
        waiting = array.array("i", [0])
        if stat.S_ISFIFO(found.st_mode):
            fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        return waiting[0] > 0
    except OSError:  # it is closed
        return False
