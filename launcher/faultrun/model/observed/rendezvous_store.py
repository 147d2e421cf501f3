"""What goes between ranks and the store over which those of several nodes become one process group again.

TCP, one JSON object on one line each way (``model.wire.message``), values in hexadecimal. The store speaks
first; a question is answered before the next one is heard.

store -> rank   nonce  {nonce}
rank -> store   hello  {seal}                      HMAC of the nonce; a rank with another one is cut off
                set    {key, value}                -> done {}
                add    {key, amount}               -> number {number}
                get    {keys, within_s}            -> values {values}; none when one did not come in time
                swap   {key, expected, desired}    -> values {values}: what is there now
                drop   {key}                       -> number {number}: how many there were

The key of the seal is made of the run's name, the supervisors of the plan and its incarnation: a rank that
knows these has read the agreement's store. It keeps strangers out who reach the port. It hides nothing.
"""

from faultrun.model.plan import Plan
from faultrun.model.topology import RunId

TCP = "tcp:"
"""How a ``store`` begins that is none of this machine's files; host and port follow."""


def meeting_secret(run_id: RunId, plan: Plan) -> str:
    """What only processes of this run and incarnation know."""
    from hashlib import sha256  # noqa: PLC0415  it brings OpenSSL into PID 1: only that of several nodes pays for it

    told = "\0".join(("faultrun meeting", run_id, str(plan.incarnation), *plan.boots))
    return sha256(told.encode()).hexdigest()


def meeting_seal(secret: str, nonce: str) -> str:
    """Proves that the other side knows the secret, once."""
    import hmac  # noqa: PLC0415  as above

    return hmac.new(secret.encode(), nonce.encode(), "sha256").hexdigest()
