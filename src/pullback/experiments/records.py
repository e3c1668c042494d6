"""What a run leaves on disk: a folder with run.json, records.jsonl, checkpoint.pt, pictures.json, and done at the end.

Everything but the records is written beside its place and then moved there, so that a process that is killed leaves the
old file or the new one.  Records are appended line by line; a last line that was torn is dropped, and said so.
"""

import contextlib
import functools
import hashlib
import json
import lzma
import os
import platform
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

import pullback as pb
from pullback.experiments.mistakes import Mistake
from pullback.experiments.run import Run
from pullback.experiments.task import Picture, Task

try:
    import fcntl
except ImportError:  # not on Windows: there two processes can train the same run
    fcntl = None  # type: ignore[assignment]

FORMAT, VERSION = "pullback run", 2
FILES = ("run.json", "records.jsonl", "checkpoint.pt", "pictures.json", "done", "failed")
Record = dict[str, Any]


@functools.cache
def _fingerprint() -> str:
    """A fingerprint of the library's sources: two runs of one version may come from different ones."""
    folder = Path(pb.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


class Busy(Mistake):
    """Another process trains the run."""


class Log:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def is_done(self) -> bool:
        """Whether the run has taken all its steps."""
        return self.path("done").exists()

    @property
    def failure(self) -> str | None:
        """Why the run cannot be finished, if so."""
        path = self.path("failed")
        return path.read_text("utf-8", errors="replace").strip() if path.exists() else None

    def check(self, run: Run[Any]) -> None:
        """Raises where a run that is done has lost its last record, or its description."""
        self._check_description(run)
        lost = self.lacks(run)
        if lost:
            raise Mistake(lost)

    def lacks(self, run: Run[Any]) -> str | None:
        """What a run that is done has lost, if anything."""
        records, complaint = read_records(self.path("records.jsonl"))
        last = records[-1]["step"] if records else 0
        if last == run.steps:
            return None
        lost = f"the run is done, and its last record is that of step {last} of {run.steps}"
        return f"{complaint or self.path('records.jsonl')}; {lost}.  Without its folder it is trained anew."

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other processes from training the same run; the lock ends with the process, however it ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path("lock").open("w") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise Busy(f"{self.folder} is being trained by another process.") from error
            yield

    # ---- writing

    def begin(self, run: Run[Any]) -> None:
        """Says what the run is; forgets an earlier failure.

        Raises where the folder holds something else, which would be lost, or would make the report leave the run out.
        """
        if self.path("run.json").exists():
            self._check_description(run)
        self.path("failed").unlink(missing_ok=True)
        for name in FILES:  # what a process was writing when it was killed
            for beside in self.folder.glob(f"{name}.*"):
                if beside.suffix[1:].isdigit():
                    beside.unlink()
        if not self.path("run.json").exists():
            about = {
                "format": FORMAT,
                "version": VERSION,
                "pullback": pb.__version__,
                "sources": _fingerprint(),
                "torch": torch.__version__,
                "python": platform.python_version(),
                "run": run.to_dict(),
            }
            self._replace("run.json", json.dumps(about, indent=1).encode())

    def _check_description(self, run: Run[Any]) -> None:
        path = self.path("run.json")
        if _description(path)["run"] != run.to_dict():
            raise Mistake(f"{path} describes another run; without this folder it is trained anew.")

    def write(self, record: Record) -> None:
        """Appends a record."""
        with self.path("records.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"version": VERSION, **record}) + "\n")
            file.flush()
            os.fsync(file.fileno())  # before the checkpoint: what it leaves behind is not trained again

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Puts the checkpoint in place of the last."""
        with self._written("checkpoint.pt") as beside:
            torch.save(checkpoint, beside)

    def checkpoint(self, evaluate_every: int, is_writer: bool = True) -> dict[str, Any] | None:
        """The last checkpoint, None if there is none yet; whoever writes drops records that are newer.

        Raises where records of earlier steps, one for each `evaluate_every`, are missing.
        """
        found = self._load()
        if not is_writer:
            return found
        path = self.path("records.jsonl")
        records, complaint = read_records(path)
        kept = [record for record in records if found is not None and record["step"] <= found["step"]]
        expected = 0 if found is None else found["step"] // evaluate_every
        if len(kept) < expected:
            raise Mistake(
                f"{complaint or path}: {len(kept)} records of {expected} are there, and the run cannot go on; without "
                "checkpoint.pt it begins anew."
            )
        self._replace("records.jsonl", "".join(json.dumps(record) + "\n" for record in kept).encode())
        return found

    def _load(self) -> dict[str, Any] | None:
        if not self.path("checkpoint.pt").exists():
            return None
        try:
            with warnings.catch_warnings():  # torch warns of files that it does not know before it refuses them
                warnings.simplefilter("ignore")
                found = torch.load(self.path("checkpoint.pt"), map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, UnpicklingError, LookupError, ValueError, OSError) as error:
            raise self.cannot_go_on() from error
        if not isinstance(found, dict) or not isinstance(found.get("step"), int):
            raise self.cannot_go_on()
        return found

    def cannot_go_on(self) -> Mistake:
        """What is said where the checkpoint is not one of this run."""
        path = self.path("checkpoint.pt")
        return Mistake(f"{path} cannot be read, and the run cannot go on; without this file it begins anew.")

    def finish(self, pictures: list[Picture]) -> None:
        """Marks the run as finished."""
        shown = [{"title": picture.title, "svg": picture.svg} for picture in pictures]
        self._replace("pictures.json", json.dumps(shown).encode())
        self._replace("done", b"")

    def fail(self, reason: str) -> None:
        """Marks the run as one that cannot be finished."""
        self._replace("failed", reason.encode())

    def _replace(self, name: str, content: bytes) -> None:
        with self._written(name) as beside:
            beside.write_bytes(content)

    @contextlib.contextmanager
    def _written(self, name: str) -> Iterator[Path]:
        """A place beside that of the file, where its content is written before it is moved there."""
        beside = self.path(f"{name}.{os.getpid()}")
        try:
            yield beside
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            beside.replace(self.path(name))
        except (OSError, RuntimeError) as error:  # torch.save speaks of a full disk in a RuntimeError
            beside.unlink(missing_ok=True)
            reason = str(error).splitlines()[0]
            raise Mistake(f"{self.path(name)} cannot be written, and the last one stays: {reason}") from error


@dataclass(frozen=True)
class Result:
    """A run as it was found on disk."""

    run: Run[Any]
    records: list[Record]
    is_done: bool
    failure: str | None
    folder: Path
    pictures: list[Picture] = field(default_factory=list)
    version: str = pb.__version__  # of the library that trained it


def read_records(path: Path) -> tuple[list[Record], str | None]:
    """The records of a file, and what is wrong with it if something is."""
    if not path.exists():
        return [], None
    found: list[Record] = []
    lines = path.read_text("utf-8", errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            if number == len(lines):
                return found, f"{path}: the last line is torn, and was left out"
            return found, f"{path}: line {number} is not JSON; this line and those after it were left out"
        if not _is_record(record):
            return (
                found,
                f"{path}: line {number} is not a record of version {VERSION}; it and those after were left out",
            )
        found.append(record)
    return found, None


def _is_record(given: Any) -> bool:
    """Whether a line has what every record has."""
    return (
        isinstance(given, dict)
        and given.get("version") == VERSION
        and all(isinstance(given.get(name), int | float) for name in ("step", "loss", "seconds", "decodings"))
        and all(_are_numbers(given.get(name)) for name in ("validation", "test"))
        and _are_numbers(given.get("gradient", {}))
    )


def _are_numbers(given: Any) -> bool:
    return isinstance(given, dict) and all(isinstance(number, int | float) for number in given.values())


def read(runs: Path, tasks: dict[str, type[Task]]) -> tuple[list[Result], list[str]]:
    """All runs below a folder or in a tar archive, and a sentence about each file that is not what it should be."""
    if runs.is_dir():
        return _read_folder(runs, tasks)
    if not runs.is_file() or not tarfile.is_tarfile(runs):
        raise Mistake(
            f"{runs} is not a folder; expected that of an earlier `run`, `sweep` or `demo`, or an archive of it."
        )
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(runs) as archive:
                archive.extractall(folder, filter="data")
        except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise Mistake(f"{runs} cannot be unpacked: {error}") from error
        return _read_folder(Path(folder), tasks)


def _read_folder(folder: Path, tasks: dict[str, type[Task]]) -> tuple[list[Result], list[str]]:
    results: dict[str, Result] = {}
    complaints: list[str] = []
    for path in sorted(folder.rglob("run.json")):
        try:
            found = _read_one(path.parent, tasks, complaints)
        except Mistake as mistake:
            complaints.append(f"{mistake}; left out")
            continue
        except OSError as error:
            complaints.append(f"{error.filename}: {error.strerror}; left out")
            continue
        known = results.setdefault(found.run.key, found)
        if known is not found:
            kept, copy = (found, known) if found.is_done and not known.is_done else (known, found)
            results[found.run.key] = kept
            complaints.append(f"{copy.folder}: the same run as {kept.folder}; left out")
    complaints += [f"{path}: from an older version; left out" for path in sorted(folder.glob("*.jsonl"))]
    return list(results.values()), complaints


def _description(path: Path) -> dict[str, Any]:
    """What a run.json says; `Mistake` if it is not one of this version."""
    try:
        about = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise Mistake(f"{path}: not readable ({error})") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT or about.get("version") != VERSION:
        raise Mistake(f"{path}: not a run of version {VERSION}")
    if not isinstance(about.get("run"), dict):
        raise Mistake(f"{path}: not a complete run")
    return about


def _read_one(folder: Path, tasks: dict[str, type[Task]], complaints: list[str]) -> Result:
    path = folder / "run.json"
    about = _description(path)
    try:
        run = Run.from_dict(about["run"], tasks)
    except Mistake as mistake:
        raise Mistake(f"{path}: {mistake}") from mistake
    except (KeyError, TypeError, AttributeError) as error:
        raise Mistake(f"{path}: not a complete run ({error!r})") from error
    changed = [name for name, value in about["run"].items() if run.to_dict().get(name) != value]
    if changed:
        raise Mistake(f"{path}: {', '.join(changed)} would be another in this version")
    log = Log(folder)
    records, complaint = read_records(folder / "records.jsonl")
    lost = log.lacks(run) if log.is_done else None
    complaints += [wrong for wrong in (lost or complaint,) if wrong]
    pictures = _pictures(folder / "pictures.json", complaints)
    version = str(about.get("pullback", pb.__version__))
    return Result(run, records, log.is_done and lost is None, log.failure, folder, pictures, version)


def _pictures(path: Path, complaints: list[str]) -> list[Picture]:
    if not path.exists():
        return []
    try:
        return [Picture(str(one["title"]), str(one["svg"])) for one in json.loads(path.read_text("utf-8"))]
    except (ValueError, TypeError, KeyError) as error:
        complaints.append(f"{path}: not readable ({error}); left out")
        return []
