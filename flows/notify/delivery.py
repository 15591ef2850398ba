"""The failure of an attempt to deliver a message."""


class DeliveryError(Exception):
    """A message was not taken.

    Attributes:
        passing: whether another attempt may succeed.
    """

    def __init__(self, problem: str, *, passing: bool = True) -> None:
        super().__init__(problem)
        self.passing = passing
