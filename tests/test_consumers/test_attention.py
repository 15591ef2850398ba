"""Documents of one sequence in attention: the masks agree, and nothing passes from one to another."""

import numpy as np
import pytest

from tests.test_tasks.fabricated import encoded_corpus, mix_corpus, numbered, pack_mixture
from tokmill.tasks.formats.packed.masks import block_ranges, mask_function, varlen
from tokmill.tasks.formats.packed.reader import PackedReader

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.consumers, pytest.mark.filterwarnings("ignore")]

LENGTH, VOCAB_SIZE, WIDTH, HEADS = 64, 64, 32, 2


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


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(WIDTH) for _ in range(2)])
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        shape = (len(x), -1, HEADS, WIDTH // HEADS)
        q, k, v = (
            part.reshape(shape).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        )
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


class Transformer(torch.nn.Module):
    """Two layers, trained from scratch."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(VOCAB_SIZE, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.layers = torch.nn.ModuleList([Layer(), Layer()])
        self.head = torch.nn.Linear(WIDTH, VOCAB_SIZE)

    def embedded(self, sequences):
        return self.tokens(stacked(sequences, "input_ids")) + self.positions(
            stacked(sequences, "position_ids")
        )

    def logits(self, embedded, mask):
        for layer in self.layers:
            embedded = layer(embedded, mask)
        return self.head(embedded)


def loss_of(model, sequences, mask):
    """The mean loss of predicting the next token of the same piece."""
    logits = model.logits(model.embedded(sequences), mask)[:, :-1]
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), stacked(sequences, "labels")[:, 1:])


@pytest.fixture(scope="module")
def trained(batch):
    """A model that has learned something, so that what it attends to matters."""
    torch.manual_seed(0)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = loss_of(model, batch, masks_of(batch))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2
    return model


def changed(sequence, piece):
    """The sequence with other tokens in one piece."""
    ids = sequence.input_ids.copy()
    begin, end = sequence.cu_seqlens[piece], sequence.cu_seqlens[piece + 1]
    ids[begin:end] = (ids[begin:end] + 13) % VOCAB_SIZE
    return type(sequence)(ids, sequence.cu_seqlens)


def several_pieces(batch):
    return [sequence for sequence in batch if len(sequence.cu_seqlens) > 2]


def test_another_document_of_the_sequence_does_not_change_a_bit(batch, trained):
    for sequence in several_pieces(batch):
        for piece in range(len(sequence.cu_seqlens) - 1):
            pair = [sequence, changed(sequence, piece)]
            with torch.no_grad():
                before, after = trained.logits(trained.embedded(pair), masks_of(pair))
            mine = torch.from_numpy(sequence.segment_ids) == piece + 1
            assert torch.equal(before[~mine], after[~mine])
            assert not torch.equal(before[mine], after[mine])


def test_without_the_mask_it_would(batch, trained):
    sequence = several_pieces(batch)[0]
    pair = [sequence, changed(sequence, 0)]
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()[None, None]
    with torch.no_grad():
        before, after = trained.logits(trained.embedded(pair), causal)
    others = torch.from_numpy(sequence.segment_ids) > 1
    assert not torch.equal(before[others], after[others])


def test_no_gradient_flows_between_documents(batch, trained):
    for sequence in several_pieces(batch):
        embedded = trained.embedded([sequence]).detach().requires_grad_()
        logits = trained.logits(embedded, masks_of([sequence]))[0]
        segments = torch.from_numpy(sequence.segment_ids)
        logits[segments == 1].square().sum().backward()
        flows = embedded.grad[0].abs().sum(dim=-1) > 0
        assert torch.equal(flows, segments == 1)
