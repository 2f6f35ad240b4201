"""Local files and folders, and tar archives of them."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from .errors import BadSettings

CHUNK_BYTES = 256 * 1024


def open_local(path: str | os.PathLike[str]) -> BinaryIO:
    return Path(path).open("rb")


def can_be_read_again(path: str | os.PathLike[str]) -> bool:
    """Whether it is a file; a pipe, for one, can be read once."""
    return stat.S_ISREG(os.stat(path).st_mode)


def pack_folder(path: str | os.PathLike[str]) -> BinaryIO:
    """A temporary file with a tar archive of what is in a folder. Whoever unpacks it owns the files."""
    packed = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            # Of a link to a folder it is the folder that is packed.
            archive.add(os.path.realpath(path), arcname=".", filter=_without_owner)
        packed.seek(0)
        return packed
    except BaseException:
        packed.close()
        raise


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
        warnings.warn(f"{info.name} was not uploaded, since it is no file.", stacklevel=2)
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def unpack_folder(packed: IO[bytes], target: str | os.PathLike[str]) -> int:
    """Unpacks files and folders into a folder, and gives the files' size in bytes. The archive was made by others, so
    links, which might lead out of the folder, are left out with a warning."""
    size = 0
    Path(target).mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=packed, mode="r|*") as archive:
        for entry in archive:
            local = _path_inside(Path(target), entry.name)
            if entry.isdir():
                local.mkdir(parents=True, exist_ok=True)
            elif entry.isfile():
                content = archive.extractfile(entry)
                assert content is not None  # It is a file.
                local.parent.mkdir(parents=True, exist_ok=True)
                with _write_whole(local) as file:
                    shutil.copyfileobj(content, file, CHUNK_BYTES)
                local.chmod(entry.mode & 0o777)
                size += entry.size
            else:
                warnings.warn(f"{entry.name} was not downloaded, since it is no file.", stacklevel=2)
    return size


def _path_inside(target: Path, name: str) -> Path:
    path = PurePosixPath(name)
    # A drive of Windows, or its separator, is no part of a name.
    if path.is_absolute() or ".." in path.parts or (os.name == "nt" and set(name) & set(":\\")):
        raise BadSettings(f"The archive has an entry that would lie outside of {target}: {name!r}")
    return target.joinpath(*path.parts)


@contextmanager
def write_local(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a local file for writing. The file appears only once it is whole, and a link's target is replaced rather
    than the link. A device or a pipe is written to directly."""
    target = Path(path)
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
    else:
        with _write_whole(target.resolve()) as file:
            yield file


@contextmanager
def _write_whole(path: Path) -> Iterator[BinaryIO]:
    """Opens a local file for writing. The file appears only once it is whole, and replaces what has its name, a link
    included."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with partial.open("xb") as file:
            yield file
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
