"""One node's line to a SuperLink."""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from secure_fl.errors import AwayError, InputError, ServiceError
from secure_fl.flower.superlink.messages import ARRIVING, Arrived, content_of, inflate, reply_to
from secure_fl.flower.superlink.refusals import (
    INACTIVE,
    NO_REGISTRATION,
    TAKEN,
    RefusedError,
    RunOverError,
    refusal,
)
from secure_fl.flower.superlink.setup import check_flwr, private_key
from secure_fl.reaching import Remedies, lasting_cause, tls_context

HEARTBEAT = 30.0
"""Seconds, Flower's own: a node that is silent for twice as long counts as gone."""
_REMEDIES = Remedies(
    untrusted="name the PEM file of who signed it (--root-certificates), or the name that the"
    " certificate is for (--superlink)",
    plain="start this node with --insecure, or give the SuperLink a certificate",
    encrypted="leave out --insecure, and name who signed its certificate (--root-certificates)",
)


class Line:
    """One node's line to a SuperLink.

    Args:
        address: HOST:PORT of the SuperLink.
        key: the node's private key, as `ssh-keygen -t ecdsa` writes it; `source` names its file.
        registers: the node registers its key itself; False where the server did (node
            authentication).
        authority: PEM file of who signed the SuperLink's certificate; None trusts the system's.
        insecure: speak plain HTTP.

    Raises:
        InputError: address, key or authority cannot be used.
        MissingExtraError: another flwr is installed, or none.
    """

    def __init__(
        self,
        address: str,
        key: bytes,
        *,
        source: Path,
        registers: bool,
        authority: Path | None = None,
        insecure: bool = False,
    ) -> None:
        check_flwr()
        from flwr.proto.node_pb2 import Node
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise InputError(f"--superlink {address[:100]}: expected HOST:PORT")
        private = private_key(key, source)
        self._key, self._source, self._registers = private.public_key(), source, registers
        self._public = public_key_to_bytes(self._key)
        self._name = f"SuperLink {address}"
        self._url = f"{'http' if insecure else 'https'}://{address}"
        self._client = FleetHttpClient(
            self._url,
            interceptors=[_VersionHeaders(), NodeAuthHttpInterceptor(private, self._key)],
            verify=False if insecure else tls_context(authority),
        )
        self._node = Node(node_id=0)
        self._beats: Any = None

    @property
    def node(self) -> int:
        """The SuperLink's number of this node; 0 before it joined."""
        return int(self._node.node_id)

    def join(self, before: int = 0) -> int:
        """Registers, where nodes do that themselves, and says that this node is here.

        Args:
            before: number that this node had; it may have been killed without a farewell.

        Returns:
            This node's number.

        Raises:
            AwayError: not reached.
            ServiceError: refused, for a reason that waiting does not mend.
        """
        from flwr.proto.fleet_pb2 import ActivateNodeRequest, RegisterNodeFleetRequest
        from flwr.proto.node_pb2 import Node

        client = self._client
        if self._registers:
            try:
                self._call(client.RegisterNode, RegisterNodeFleetRequest(public_key=self._public))
            except RefusedError as refused:
                if refused.code == NO_REGISTRATION:
                    raise ServiceError(
                        f"{self._name}: knows its nodes by their keys; have the key registered and"
                        " name its file (--auth-supernode-private-key)"
                    ) from None
                if refused.code != TAKEN:
                    raise
        asked = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        try:
            number = int(self._call(client.ActivateNode, asked).node_id)
        except RefusedError as refused:
            if refused.code != INACTIVE:
                raise
            # Killed without a farewell it still counts as there. It must not say farewell now: what
            # it was asked would be answered, by the SuperLink, that nobody is there.
            if not self._beats_as(before):
                raise ServiceError(
                    f"{self._name}: does not take the key of {self._source}; register its public"
                    " half (flwr supernode register), or end the other node that uses it, which"
                    f" counts as there for {2 * HEARTBEAT:.0f} s after it was killed"
                ) from None
            number = before
        self._node = Node(node_id=number)
        self._start_beats()
        return self.node

    def look(self) -> Arrived | None:
        """The next message for this node, which comes once; None where there is none.

        Raises:
            AwayError, ForgottenError: so.
        """
        from flwr.proto.fleet_pb2 import PullMessagesRequest

        found = self._call(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        if not found.message_object_trees:
            raise ServiceError(f"{self._name}: sends a message without its objects")
        head, tree = found.messages_list[0], found.message_object_trees[0]
        return Arrived(head.SerializeToString(), tree.SerializeToString(), time.time())

    def request(self, arrived: Arrived) -> bytes | None:
        """Securefl's bytes in a message; None where it has none.

        All of its objects are fetched: before, its sender may still be at work on them.

        Raises:
            AwayError, ForgottenError: so.
            RunOverError: the message is not there any more.
        """
        from flwr.proto.message_pb2 import ObjectTree
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        tree = ObjectTree.FromString(arrived.tree)
        try:
            objects = [each.object_id for each in iterate_object_tree(tree)]
        except RecursionError:
            return None
        contents = {each: self._object(arrived.run, each) for each in objects}
        return content_of(inflate(arrived.number, contents))

    def answer(self, arrived: Arrived, answer: bytes, seconds: float) -> None:
        """Sends the answer to a message. Sent again it is the same, and counts once.

        Args:
            arrived: the message.
            answer: securefl's bytes.
            seconds: that it took, for the SuperLink's log.

        Raises:
            AwayError, ForgottenError: so.
            RunOverError: nobody waits for it any more.
        """
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PushObjectRequest
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            no_object_id_recompute,
        )

        run, client = arrived.run, self._client
        received = ConfirmMessageReceivedRequest(
            node=self._node, run_id=run, message_object_id=arrived.number
        )
        self._call(client.ConfirmMessageReceived, received)
        with no_object_id_recompute():
            reply = reply_to(arrived, answer)
            head = message_to_proto(remove_content_from_message(reply))
            push = PushMessagesRequest(
                node=self._node,
                messages_list=[head],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
            objects = get_all_nested_objects(reply)
        pushed = self._call(client.PushMessages, push)
        # A SuperLink forgets a question once its server has seen the answer's head, and then asks
        # for no objects, though it still waits for those that did not come: without a session it
        # takes them, and passes over what it has.
        wanted = set(pushed.objects_to_push)
        session = pushed.session_id if wanted else ""
        # Children first: who finds the whole finds its parts.
        for number in [each for each in objects if each in wanted or not wanted]:
            self._call(
                client.PushObject,
                PushObjectRequest(
                    node=self._node,
                    run_id=run,
                    object_id=number,
                    object_content=objects[number].deflate(),
                    session_id=session,
                ),
            )

    def app(self, run: int) -> tuple[bytes, Mapping[str, Any]]:
        """A run's app, as bytes, and the settings that it was started with.

        Raises:
            AwayError, ForgottenError: so.
            RunOverError: it has ended.
            ServiceError: the app is not the one whose digest the run has.
        """
        import hashlib

        from flwr.common.serde import run_from_proto
        from flwr.proto.fab_pb2 import GetFabRequest
        from flwr.proto.run_pb2 import GetRunRequest

        asked = GetRunRequest(node=self._node, run_id=run)
        found = run_from_proto(self._call(self._client.GetRun, asked).run)
        request = GetFabRequest(node=self._node, hash_str=found.fab_hash, run_id=run)
        content: bytes = self._call(self._client.GetFab, request).fab.content
        if hashlib.sha256(content).hexdigest() != found.fab_hash:
            raise ServiceError(f"{self._name}: run {run} has another app than it says")
        return content, found.override_config

    def leave(self) -> None:
        """Says farewell, where the SuperLink hears it, and closes the line."""
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest

        if self._beats is not None and self._beats.is_running:
            self._beats.stop()
        if self.node:
            with contextlib.suppress(ServiceError):
                self._call(self._client.DeactivateNode, DeactivateNodeRequest(node_id=self.node))
        self._client.close()

    def _start_beats(self) -> None:
        from flwr.supercore.heartbeat import HeartbeatSender

        if self._beats is None:
            self._beats = HeartbeatSender(self._beat)
            self._beats.start()

    def _beat(self) -> bool:
        return self._beats_as(self.node)

    def _beats_as(self, number: int) -> bool:
        """Whether the SuperLink hears that the node of this number, with this key, is there."""
        import httpx
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
        from flwr.proto.node_pb2 import Node

        node = Node(node_id=number)
        beat = SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT)
        try:
            return number != 0 and bool(self._client.SendNodeHeartbeat(beat).success)
        except (httpx.HTTPError, RuntimeError, ValueError):
            # The node's own loop meets the same, and says so.
            return False

    def _object(self, run: int, number: str) -> bytes:
        from flwr.proto.message_pb2 import PullObjectRequest

        request = PullObjectRequest(node=self._node, run_id=run, object_id=number)
        end, pause = time.monotonic() + ARRIVING, 0.02
        while True:
            found = self._call(self._client.PullObject, request)
            if found.object_found and found.object_available:
                return bytes(found.object_content)
            if not found.object_found or time.monotonic() > end:
                raise RunOverError(f"{self._name}: a message of run {run} is not there any more")
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        import httpx

        try:
            return method(request)
        except httpx.HTTPStatusError as error:
            raise refusal(self._name, error.response) from None
        except httpx.RequestError as error:
            lasting = lasting_cause(error, self._url, direct=True, remedies=_REMEDIES)
            if lasting is not None:
                raise ServiceError(f"{self._name}: {lasting}") from None
            kind = type(error).__name__
            raise AwayError(f"{self._name}: cannot be reached ({kind}); is it running?") from None
        except ValueError:
            raise ServiceError(f"{self._name}: answers what no SuperLink says") from None


class _VersionHeaders:
    """Says which flwr speaks, as Flower's own nodes do; a refusal for it stays a refusal."""

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Adds the headers."""
        from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

        told = RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata()
        context.request.headers.update(dict(told))
        return call_next(context)
