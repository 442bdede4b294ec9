"""The trust boundary is one check: only Releases and declared constants cross an untrusted edge."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.engine.protocol import Message, Transcript
from tacit.errors import UntrustedMessage
from tacit.privacy.release import Declared, Release


@dataclass(frozen=True)
class Edge:
    """One direction between two parties. ``trusted`` means: the learner trusts the receiver."""

    sender: str
    receiver: str
    trusted: bool
    transcript: Transcript

    def send(self, message: Message) -> Message:
        """The message, if it may cross; otherwise UntrustedMessage, and nothing has moved."""
        if self.trusted:
            return message
        for name, part in message.items():
            if not isinstance(part, Release | Declared):
                raise UntrustedMessage(
                    f"{name!r} from {self.sender} to {self.receiver} is a {type(part).__name__}; "
                    f"{self.receiver} is not trusted, so only a Release or a Declared constant "
                    "may cross"
                )
        self.transcript.append((self.sender, self.receiver, message))
        return message
