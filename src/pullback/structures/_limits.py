"""How much is written out before a structure refuses."""

MOST_NUMBERS = 2**33  # in a list of the best vertices: 64 GB in double precision
MOST_VERTICES = 2**22  # in a list of all
MOST_LISTED_NUMBERS = 2**28  # in a list of all, where vertices have many parts: 1 GB in single precision
MOST_IN_MIXTURE = 2**13  # in a mixture that combines those of several structures


class TooManyVertices(ValueError):
    """More vertices than one would want to list."""


def check_count(name: str, count: int, what: str = "there are {} vertices", advice: str = "") -> None:
    """Refuses to list more vertices than one would want to; `what` there are so many of, in the user's words."""
    if count > MOST_VERTICES:
        raise TooManyVertices(f"{name}: {what.format(count)}; expected at most {MOST_VERTICES} to list.{advice}")


def check_list(name: str, count: int, parts: int) -> None:
    """`check_count`, where a vertex has so many parts that fewer of them fill the memory."""
    check_count(name, count)
    if count * parts > MOST_LISTED_NUMBERS:
        raise TooManyVertices(
            f"{name}: there are {count} vertices of {parts} parts, before any mask; expected at most "
            f"{MOST_LISTED_NUMBERS} numbers to list."
        )
