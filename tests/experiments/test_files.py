"""Files of data sets, as people have them."""

import lzma

from pullback.experiments.files import lines_of


def test_a_byte_order_mark_is_not_a_part_of_the_first_word(tmp_path):
    (tmp_path / "g2p").mkdir()
    content = "\ufeffaap\ta p\nnoot\tn o t\n".encode()
    (tmp_path / "g2p" / "plain.tsv").write_bytes(content)
    (tmp_path / "g2p" / "packed.tsv.xz").write_bytes(lzma.compress(content))
    for name in ("plain", "packed"):
        assert lines_of(str(tmp_path), f"g2p/{name}.tsv") == ["aap\ta p", "noot\tn o t"]
