"""Records on disk: one JSON line per evaluation, one file per run."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from pullback.experiments.settings import Settings

Record = dict[str, Any]


def path_of(settings: Settings, folder: Path) -> Path:
    """Where a run is recorded; the same settings give the same file."""
    digest = sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()[:8]
    return folder / f"{settings.estimator}-k{settings.clusters}-s{settings.seed}-{digest}.jsonl"


def write(records: Iterable[Record], path: Path) -> None:
    """Writes records as they come."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
            file.flush()


def read(folder: Path) -> list[list[Record]]:
    """All runs of a folder, each a list of records."""
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(folder.glob("*.jsonl"))]
