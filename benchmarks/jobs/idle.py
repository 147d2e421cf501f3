"""A worker that does nothing: tells when it runs, dies on SIGUSR1 by its own SIGKILL, tells of SIGTERM.

It waits for signals instead of handling them: there is no time between the
signal and its answer but the kernel's. It ends by itself after a while, in
case nobody is left to end it.
"""

import os
import signal

from benchmarks.jobs.tell import BORN_S, Teller

_LIFETIME_S = 300
_WAITED_FOR = {signal.SIGUSR1, signal.SIGTERM}


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    tell = Teller()
    tell("running", at_s=BORN_S)
    answer = signal.sigtimedwait(_WAITED_FOR, _LIFETIME_S)
    if answer is not None and answer.si_signo == signal.SIGUSR1:
        tell("dying")
        os.kill(os.getpid(), signal.SIGKILL)
    if answer is not None:
        tell("signalled")
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
