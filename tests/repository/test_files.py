"""Reading and writing files."""

import os

import pytest

from recgen.files import UnreadableFileError, read_text, write_text


def test_byte_order_mark_and_carriage_returns_are_dropped(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(b"\xef\xbb\xbflanguage 1\r\n")
    assert read_text(path) == "language 1\n"


def test_missing_file_offers_its_neighbour(tmp_path):
    (tmp_path / "delta_rule.rec").write_text("")
    for wrong in ("delta_rul.rec", "delta_rule"):
        with pytest.raises(UnreadableFileError) as caught:
            read_text(tmp_path / wrong)
        assert str(caught.value) == f"{tmp_path / wrong}: no such file; did you mean {tmp_path / 'delta_rule.rec'}?"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "is a directory; name the .rec files in it"), (b"abc\xff", r"is not UTF-8 text \(byte 3 is 0xff\)")],
)
def test_unreadable(tmp_path, content, message):
    path = tmp_path / "x.rec"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UnreadableFileError, match=message):
        read_text(path)


def test_null_in_a_name_is_unreadable(tmp_path):
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        read_text(tmp_path / "a\0b")


def test_write_makes_folders_and_leaves_no_part(tmp_path):
    path = tmp_path / "new" / "a.py"
    write_text(path, "α\n")
    write_text(path, "β\n")
    assert path.read_bytes() == "β\n".encode()
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
