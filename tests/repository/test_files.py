"""Writing files."""

import os

import pytest

from recgen.files import holds, write_text


def test_write_makes_folders_and_leaves_no_part(tmp_path):
    path = tmp_path / "new" / "a.py"
    write_text(path, "α\n")
    write_text(path, "β\n")
    assert path.read_bytes() == "β\n".encode()
    assert holds(path, "β\n")
    assert not holds(path, "β\r\n")
    assert [p.name for p in path.parent.iterdir()] == ["a.py"]


def test_write_keeps_links_and_permissions(tmp_path):
    target, link = tmp_path / "target.rec", tmp_path / "link.rec"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_new_file_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_failed_write_leaves_the_old_text(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
