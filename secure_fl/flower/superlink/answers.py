"""Answers to a run's messages, as its server gets them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from secure_fl.flower.superlink.messages import inflate

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid


class Answers:
    """Answers to a run's messages as they come; see `secure_fl.flower.app.GridTransport`.

    Flower's own way waits a whole second where an answer shows before its content, and lets all
    others wait with it.

    Args:
        grid: of the ServerApp.
    """

    def __init__(self, grid: "Grid") -> None:
        self._grid: Any = grid
        self._direct = hasattr(grid, "_runtime_client")
        self._arriving: dict[str, tuple[Any, list[str], dict[str, bytes]]] = {}

    def look(self, waiting: Sequence[str]) -> list[tuple[str, "Message | None"]]:
        """What came since the last look.

        Args:
            waiting: names of the messages that have no answer yet.

        Returns:
            The message that is answered, and the answer; None where it will not come whole: the
            SuperLink gave its rest up.
        """
        if not self._direct:
            found = self._grid.pull_messages(waiting)
            return [(each.metadata.reply_to_message_id, each) for each in found]
        self._see([each for each in waiting if each not in self._arriving])
        return [found for each in list(self._arriving) if (found := self._fetch(each)) is not None]

    def _see(self, waiting: list[str]) -> None:
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        if not waiting:
            return
        found = self._grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=waiting))
        for head, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            parts = [each.object_id for each in iterate_object_tree(tree)]
            self._arriving[head.metadata.reply_to_message_id] = head, parts, {}

    def _fetch(self, asked: str) -> "tuple[str, Message | None] | None":
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest

        grid = self._grid
        client, node, run = grid._runtime_client, grid.node, grid.run.run_id
        head, parts, contents = self._arriving[asked]
        while parts:
            request = PullObjectRequest(node=node, run_id=run, object_id=parts[0])
            found = client.PullObject(request)
            if not found.object_found:
                del self._arriving[asked]
                return asked, None
            if not found.object_available:
                return None
            contents[parts.pop(0)] = found.object_content
        del self._arriving[asked]
        number = head.metadata.message_id
        client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=number)
        )
        return asked, inflate(number, contents)
