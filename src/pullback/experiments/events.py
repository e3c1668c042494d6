"""Event files for TensorBoard, on request: the numbers of the records once more."""

from typing import Any

from pullback.experiments.mistakes import Mistake
from pullback.experiments.records import Log, Record, read_records
from pullback.experiments.run import Run
from pullback.experiments.watcher import Watcher


class Events(Watcher):
    """Writes what is recorded about a run into the folder `tensorboard` of its folder.

    Whenever a run begins or goes on, the events of earlier records are written anew, so that they are those of the
    records: also of a run that was killed, or began without TensorBoard.
    """

    def __init__(self, log: Log) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as missing:
            raise Mistake('--tensorboard needs TensorBoard: pip install "pullback[tensorboard]".') from missing
        self.log, self._open = log, SummaryWriter

    def on_start(self, run: Run[Any], step: int) -> None:
        self.rewrite()

    def on_record(self, record: Record) -> None:
        for name, value in _scalars(record).items():
            self._writer.add_scalar(name, value, record["step"])
        self._writer.flush()

    def rewrite(self) -> None:
        """Writes the events of all records that there are."""
        folder = self.log.path("tensorboard")
        for old in folder.glob("events.*"):
            old.unlink()
        self._writer = self._open(str(folder))
        for record in read_records(self.log.path("records.jsonl"))[0]:
            self.on_record(record)


def _scalars(record: Record) -> dict[str, float]:
    """The numbers of a record, those in groups as group/name."""
    found = {name: record[name] for name in ("loss", "seconds", "decodings")}
    for group in ("validation", "test", "gradient"):
        found |= {f"{group}/{name}": value for name, value in record.get(group, {}).items()}
    return found
