"""Documents of one sequence in attention: the masks agree, and nothing passes from one to another."""

import numpy as np
import pytest

from tests.test_tasks.fabricated import encoded_corpus, mix_corpus, numbered, pack_mixture
from tokmill.tasks.formats.packed.masks import block_ranges, mask_function, varlen
from tokmill.tasks.formats.packed.reader import PackedReader

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.consumers, pytest.mark.filterwarnings("ignore")]

LENGTH, VOCAB_SIZE, HEADS = 64, 64, 2


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    lengths = [20, 30, 7, 13, 50, 9, 25, 31, 12, 40, 18, 10] * 2
    corpus = encoded_corpus(
        folder / "corpus", {"a": [numbered(lengths, vocab_size=VOCAB_SIZE)]}, vocab_size=VOCAB_SIZE
    )
    params = {"sequence_length": LENGTH, "strategy": "best_fit", "pad_id": 0}
    _, path = pack_mixture(corpus, mix_corpus(corpus, folder), folder, **params)
    return PackedReader.open(path)


@pytest.fixture(scope="module")
def batch(reader):
    """All sequences, padded ones among them."""
    sequences = list(reader)
    assert min(sequence.num_tokens for sequence in sequences) < LENGTH
    return sequences


def stacked(sequences, name):
    return torch.from_numpy(
        np.stack([np.asarray(getattr(sequence, name)) for sequence in sequences]).astype(np.int64)
    )


def masks_of(sequences):
    return torch.from_numpy(np.stack([sequence.document_mask() for sequence in sequences]))[:, None]


def queries_keys_values(size):
    torch.manual_seed(1)
    return [torch.randn(size, HEADS, LENGTH, 16) for _ in range(3)]


@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_flex_attention_takes_the_block_ranges(batch, block_size):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    ranges = block_ranges([sequence.cu_seqlens for sequence in batch], LENGTH, block_size)
    sees = mask_function(stacked(batch, "segment_ids"))
    arrays = (ranges.kv_num_blocks, ranges.kv_indices, ranges.full_kv_num_blocks, ranges.full_kv_indices)
    ours = flex.BlockMask.from_kv_blocks(
        *map(torch.from_numpy, arrays), BLOCK_SIZE=ranges.block_size, mask_mod=sees
    )
    theirs = flex.create_block_mask(
        sees, B=len(batch), H=None, Q_LEN=LENGTH, KV_LEN=LENGTH, device="cpu", BLOCK_SIZE=block_size
    )
    assert (ours.to_dense() == theirs.to_dense()).all()
    assert (ours.full_kv_num_blocks == theirs.full_kv_num_blocks).all()
    assert (ours.kv_num_blocks == theirs.kv_num_blocks).all()

    q, k, v = queries_keys_values(len(batch))
    found = flex.flex_attention(q, k, v, block_mask=ours)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=masks_of(batch))
    assert torch.allclose(found, expected, atol=1e-5)


def test_variable_length_attention_takes_the_bounds(batch):
    laid = varlen([sequence.cu_seqlens for sequence in batch], LENGTH)
    q, k, v = (tensor.transpose(1, 2).reshape(-1, HEADS, 16) for tensor in queries_keys_values(len(batch)))
    # What flash_attn_varlen_func computes with causal=True, run after run.
    found = torch.cat(
        [
            torch.nn.functional.scaled_dot_product_attention(
                *(tensor[begin:end].transpose(0, 1)[None] for tensor in (q, k, v)), is_causal=True
            )[0].transpose(0, 1)
            for begin, end in zip(laid.cu_seqlens, laid.cu_seqlens[1:], strict=False)
        ]
    )
    q, k, v = queries_keys_values(len(batch))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=masks_of(batch))
    expected = expected.transpose(1, 2).reshape(-1, HEADS, 16)
    tokens = stacked(batch, "segment_ids").reshape(-1) > 0
    assert torch.allclose(found[tokens], expected[tokens], atol=1e-5)
    assert laid.max_seqlen == int(np.diff(laid.cu_seqlens).max())


def test_another_document_of_the_sequence_changes_a_bit_without_the_mask_alone(batch):
    q, k, v = queries_keys_values(len(batch))
    segments = stacked(batch, "segment_ids")
    first, others = (chosen[:, None, :, None] for chosen in (segments == 1, segments > 1))
    assert others.any()
    for mask in (masks_of(batch), torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()):
        attend = torch.nn.functional.scaled_dot_product_attention
        before = attend(q, k, v, attn_mask=mask)
        after = attend(q, torch.where(first, -k, k), torch.where(first, -v, v), attn_mask=mask)
        is_same = torch.equal(before * others, after * others)
        assert is_same == (mask.ndim == 4)
