"""``usdehaze node``: a DICOM node that dehazes what it is sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdehaze.cli.group import DONE, SOME_FAILED, Console, common_options, console_of
from usdehaze.cli.options import Number, check_model, model_options, removal_options
from usdehaze.cli.plan import plan_jobs

if TYPE_CHECKING:
    from usdehaze.node.access import Access
    from usdehaze.node.destinations import Destination
    from usdehaze.node.work import Node, Process

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def default_spool() -> Path:
    """Where the queue lies if nothing else is said: XDG_STATE_HOME/usdehaze/node."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "usdehaze" / "node"


spool_option = click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the queue; one in the user's state folder by default.",
)


@click.group(invoke_without_command=True)
@click.option("--aet", default="USDEHAZE", show_default=True, metavar="TITLE", help="AE title of the node.")
@click.option("--port", type=click.IntRange(0, 65535), default=11112, show_default=True, help="To listen at; 0 any.")
@click.option("--bind", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="To listen at.")
@click.option("--send-to", multiple=True, metavar="TITLE@HOST:PORT", help="Where derived images go, by C-STORE.")
@click.option("--dicomweb", multiple=True, metavar="URL", help="Where they go by STOW-RS.")
@spool_option
@click.option("--allow-aet", multiple=True, metavar="TITLE", help="Who may call; anyone by default.")
@click.option("--allow-address", multiple=True, metavar="NET", help="From where, such as 10.1.0.0/16.")
@click.option("--max-object", type=Number(0.001, 64), default=2.0, show_default=True, help="GiB an object.")
@click.option(
    "--max-rate", type=click.IntRange(1), default=600, show_default=True, help="Objects a minute, of one address."
)
@click.option("--max-connections", type=click.IntRange(1, 1000), default=10, show_default=True, help="At once.")
@click.option("--tls-cert", type=FILE, help="PEM certificate: TLS for what comes in.")
@click.option("--tls-key", type=FILE, help="Its key, where it is not in the same file.")
@click.option("--tls-ca", type=FILE, help="PEM authority that callers' certificates, and --send-tls, must be of.")
@click.option("--send-tls", is_flag=True, help="TLS for --send-to, too.")
@click.option("--save-haze", is_flag=True, help="Send the haze as well, a series of its own.")
@model_options
@removal_options
@common_options
@click.pass_context
def node(ctx: click.Context, **options: Any) -> None:
    """Receives ultrasound by DICOM, dehazes it, sends the derived images on.

    An object is acknowledged once it is safe on disk; what cannot be delivered is tried again for hours, then parked.
    Listens at loopback alone unless --bind says otherwise. Ends on Ctrl-C and SIGTERM. See docs/pacs.md.
    """
    if ctx.invoked_subcommand is None:
        _serve(console_of(ctx), options)


@node.command()
@spool_option
@common_options
@click.pass_context
def status(ctx: click.Context, spool: Path | None) -> None:
    """Says what waits, what was sent, and what is in trouble. Exit code 1 where something is parked."""
    from usdehaze.node.queue import Queue

    console = console_of(ctx)
    queue = Queue(_existing(spool), exclusive=False)
    counts = queue.counts()
    console.say(", ".join(f"{count} {state}" for state, count in counts.items()))
    for line in queue.troubles():
        console.say(line)
    queue.close()
    ctx.exit(SOME_FAILED if counts["parked"] or counts["deliveries parked"] else DONE)


@node.command()
@spool_option
@common_options
@click.pass_context
def retry(ctx: click.Context, spool: Path | None) -> None:
    """Takes up again what was parked, and what waits for its next try."""
    from usdehaze.node.queue import Queue

    queue = Queue(_existing(spool), exclusive=False)
    console_of(ctx).say(f"{queue.retry()} taken up again")
    queue.close()


def _existing(spool: Path | None) -> Path:
    folder = spool or default_spool()
    if not (folder / "queue.sqlite").is_file():
        raise click.UsageError(f"{folder}: no queue of a node; name its folder with --spool")
    return folder


def _serve(console: Console, options: dict[str, Any]) -> None:
    from usdehaze.node.access import is_loopback
    from usdehaze.node.queue import Queue
    from usdehaze.node.receive import Receiver
    from usdehaze.node.titles import check_title
    from usdehaze.node.work import Node

    check_model(options)
    title = check_title(options.pop("aet"))
    access, bind = _access(options), options.pop("bind")
    if not (is_loopback(bind) or access.titles or access.networks):
        raise click.UsageError(f"--bind {bind} can be reached from elsewhere: say who may call, with --allow-address")
    port, spool = options.pop("port"), options.pop("spool") or default_spool()
    tls, destinations = _connections(title, options)
    process = _process(console, options)
    queue = Queue(spool)
    receiver = Receiver(queue, title, access, console.say, tls)
    worker = Node(queue, process, destinations, console.say)
    try:
        port = receiver.start(bind, port)
        worker.start()
        names = [destination.name for destination in destinations]
        to = ", ".join(names)
        console.say(f"{title} listens at {bind}:{port}, sends to {to}; queue in {spool}")
        for name, count in queue.elsewhere(names).items():
            console.note(f"{name}: {count} images of before wait for it; name it, too, to have them sent")
        _wait(worker)
    finally:
        receiver.stop()
        worker.stop()
        queue.close()


def _wait(worker: Node) -> None:
    """Until a signal comes, or a thread has died of what nobody foresaw."""
    import time

    from usdehaze.errors import UsdehazeError

    while worker.alive:
        time.sleep(0.5)
    raise UsdehazeError("the node has come to a halt; what it accepted is in its queue, start it again")


def _access(options: dict[str, Any]) -> Access:
    from usdehaze.node.access import Access, networks
    from usdehaze.node.titles import check_title

    return Access(
        titles=tuple(map(check_title, options.pop("allow_aet"))),
        networks=networks(options.pop("allow_address")),
        max_bytes=int(options.pop("max_object") * 2**30),
        per_minute=options.pop("max_rate"),
        connections=options.pop("max_connections"),
    )


def _connections(title: str, options: dict[str, Any]) -> tuple[Any, list[Destination]]:
    """TLS of what comes in, and the destinations."""
    from usdehaze.node.access import tls_context
    from usdehaze.node.destinations import ByStore, ByWeb
    from usdehaze.node.titles import Peer

    files = {name: options.pop(f"tls_{short}") for name, short in
             (("certificate", "cert"), ("key", "key"), ("authority", "ca"))}  # fmt: skip
    if files["certificate"] is None and (files["key"] is not None or files["authority"] is not None):
        raise click.UsageError("--tls-key and --tls-ca need --tls-cert")
    incoming = tls_context(server=True, **files)
    outgoing = tls_context(server=False, **files) if options.pop("send_tls") else None
    if not (peers := options.pop("send_to")) + (urls := options.pop("dicomweb")):
        raise click.UsageError("nowhere to send to; name --send-to TITLE@HOST:PORT or --dicomweb URL")
    to = dict.fromkeys(map(Peer.parse, peers))  # one that is named twice gets every image once
    return incoming, [*(ByStore(peer, title, outgoing) for peer in to), *map(ByWeb, dict.fromkeys(urls))]


def _process(console: Console, options: dict[str, Any]) -> Process:
    """Dehazes as ``usdehaze process`` does, with the same bytes."""
    from usdehaze.cli.process import Worker
    from usdehaze.io.reading import Reading
    from usdehaze.node.work import Dehazed

    save_haze = options.pop("save_haze")
    model = {**options, "scale": None, "steps": None, "samples": None, "batch_size": "auto"}
    quiet = Console(debug=console.debug, quiet=True)
    worker = Worker(model, quiet, True, False, None, "explicit", False, with_screen=False, mark=False)
    worker.load()

    def process(scan: Path, folder: Path) -> Dehazed:
        (job,) = plan_jobs((str(scan),), str(folder), save_haze=save_haze)
        entry = worker.try_one(job, Reading())
        if entry.outcome == "failed":
            return Dehazed(reason=entry.error, hopeless=not entry.frames)
        return Dehazed([path for path in (job.dicom, job.dicom_haze) if path is not None])

    return process
