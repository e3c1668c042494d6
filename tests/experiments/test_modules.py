"""Layers that encoders share."""

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from pullback.experiments.modules import BiLSTM


def test_a_bilstm_is_that_of_torch_on_packed_sequences():
    torch.manual_seed(0)
    ours, theirs = BiLSTM(5, 3), torch.nn.LSTM(5, 3, batch_first=True, bidirectional=True)
    for name, weight in ours.forwards.named_parameters():
        theirs.get_parameter(name).data = weight.data
    for name, weight in ours.backwards.named_parameters():
        theirs.get_parameter(f"{name}_reverse").data = weight.data
    lengths, vectors = torch.tensor([7, 3, 1, 5]), torch.randn(4, 7, 5, requires_grad=True)
    packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True, total_length=7)
    states, weights = ours(vectors, lengths), torch.randn(4, 7, 6)
    assert_close(states, expected)
    (gradient,), (wanted,) = (torch.autograd.grad((one * weights).sum(), vectors) for one in (states, expected))
    assert_close(gradient, wanted)
