"""A worker that does not hear SIGTERM: it leaves when it is killed, or by itself after a while."""

import signal

from benchmarks.jobs.tell import BORN_S, Teller

_LIFETIME_S = 300


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LIFETIME_S)
    Teller()("running", at_s=BORN_S)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
