"""What an estimator remembers or learns, inside the model that holds it."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pullback as pb

CHOICE = pb.Categorical()
PRICE = torch.tensor([3.0, 1.0, 2.0])


def loss(point):
    return (point * PRICE).sum(-1)


class Holder(nn.Module):
    """A module of the user's own, with an estimator among its attributes."""

    def __init__(self, estimator):
        super().__init__()
        self.encoder, self.estimator = nn.Linear(2, 3), estimator

    def losses(self, x):
        return self.estimator.loss(CHOICE, self.encoder(x), loss)


def holder(estimator):
    torch.manual_seed(0)
    return Holder(estimator)


def model(estimator):
    torch.manual_seed(0)
    made = pb.LatentStructureModel(nn.Linear(2, 3), lambda x, z: z, estimator, CHOICE, lambda z, y: loss(z))
    made.losses = lambda x: made.loss(x, None)
    return made


every_owner = pytest.mark.parametrize("own", [holder, model], ids=["module", "LatentStructureModel"])


def data():
    return torch.randn(4, 2, generator=torch.Generator().manual_seed(1))


LEARNED = [
    pytest.param(pb.structured_attention, "estimator.temperature", id="structured_attention"),
    pytest.param(pb.sparsemap, "estimator.temperature", id="sparsemap"),
    pytest.param(pb.ste_marginals, "estimator.temperature", id="ste_marginals"),
    pytest.param(pb.sparse_marginalization, "estimator.temperature", id="sparse_marginalization"),
    pytest.param(pb.minimum_risk, "estimator.temperature", id="minimum_risk"),
    pytest.param(lambda t: pb.topk_expectation(2, t), "estimator.temperature", id="topk_expectation"),
    pytest.param(pb.entmax, "estimator.regularizer.alpha", id="alpha of entmax"),
    pytest.param(lambda t: pb.entmax(1.5, t), "estimator.temperature", id="temperature of entmax"),
]


@every_owner
@pytest.mark.parametrize(("make", "key"), LEARNED)
def test_a_parameter_of_an_estimator_belongs_to_the_model(own, make, key):
    parameter = nn.Parameter(torch.tensor(1.3))
    owner = own(make(parameter))
    assert dict(owner.named_parameters())[key] is parameter
    owner.losses(data()).sum().backward()

    def value(number):
        estimator = make(number)
        if make is pb.ste_marginals:  # a linear loss has the same gradient at the argmax and at the marginals
            estimator = pb.structured_attention(number)
        return float(own(estimator).double().losses(data().double()).sum().detach())

    assert float(parameter.grad) == pytest.approx((value(1.3 + 1e-5) - value(1.3 - 1e-5)) / 2e-5, rel=1e-4, abs=1e-5)
    torch.optim.SGD(owner.parameters(), 0.1).step()
    assert float(parameter.detach()) == pytest.approx(1.3 - 0.1 * float(parameter.grad))


@every_owner
@pytest.mark.parametrize(("make", "key"), LEARNED)
def test_a_parameter_is_saved_loaded_copied_and_moved_with_the_model(own, make, key):
    owner, other = own(make(nn.Parameter(torch.tensor(1.3)))), own(make(nn.Parameter(torch.tensor(1.9))))
    assert float(owner.state_dict()[key]) == pytest.approx(1.3)
    file = io.BytesIO()
    torch.save(owner.state_dict(), file)
    file.seek(0)
    for assign in (False, True):
        other.load_state_dict(torch.load(file, weights_only=True), assign=assign)
        file.seek(0)
        assert_close(other.losses(data()), owner.losses(data()))
    twin = copy.deepcopy(owner)
    assert dict(twin.named_parameters())[key] is not dict(owner.named_parameters())[key]
    assert_close(twin.losses(data()), owner.losses(data()))
    owner.double()
    assert dict(owner.named_parameters())[key].dtype == torch.float64
    assert owner.losses(data().double()).dtype == torch.float64


def train(owner, steps):
    optimizer = torch.optim.SGD(owner.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        owner.losses(data()).sum().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in owner.parameters()]


@every_owner
def test_a_running_average_is_saved_and_training_resumes_with_the_same_baseline(own):
    torch.manual_seed(5)
    owner = own(pb.reinforce(2, "running_average"))
    train(owner, 3)
    assert "estimator.baseline.average" in owner.state_dict()
    file = io.BytesIO()
    torch.save(owner.state_dict(), file)
    file.seek(0)
    resumed = own(pb.reinforce(2, "running_average"))
    assert resumed.estimator.baseline.average.isnan()
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(resumed.estimator.baseline.average, owner.estimator.baseline.average)
    torch.manual_seed(7)
    expected = train(owner, 3)
    torch.manual_seed(7)
    for found, known in zip(train(resumed, 3), expected):
        assert torch.equal(found, known)


def sampled(*losses):
    return pb.Sampled(torch.tensor([losses]), torch.zeros(len(losses), 3), lambda: None, lambda: None)


def test_the_running_average_forgets_slowly():
    baseline = pb.RunningAverage(0.5)
    guesses = [float(baseline.guess(sampled(x, x))) for x in (4.0, 2.0, 0.0)]
    assert guesses == [0.0, 4.0, 3.0]


def test_the_running_average_remembers_only_finite_losses_of_training():
    baseline = pb.RunningAverage(0.5)
    for loss_of_one in (torch.nan, 2.0, torch.inf):
        baseline.guess(sampled(loss_of_one))
    with torch.no_grad():
        baseline.guess(sampled(9.0))
    assert float(baseline.average) == 2.0


@pytest.mark.parametrize("name", pb.CATALOG)
def test_estimators_can_be_copied_and_pickled(name):
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = {"label": CHOICE.argmax(-scores)}
    estimator = pb.get_estimator(name, **{argument: given[argument] for argument in pb.CATALOG[name].given})

    def gradient(one):
        torch.manual_seed(0)
        leaf = scores.clone().requires_grad_()
        one.loss(CHOICE, leaf, lambda z: (z * PRICE).sum(-1)).sum().backward()
        return leaf.grad

    for twin in (copy.deepcopy(estimator), pickle.loads(pickle.dumps(estimator))):
        assert type(twin) is type(estimator) and repr(twin) == repr(estimator)
        assert_close(gradient(twin), gradient(estimator))


def test_the_order_of_a_fenchel_young_loss_is_trained_with_it():
    order = nn.Parameter(torch.tensor(1.4, dtype=torch.float64))
    criterion = pb.FenchelYoungLoss(pb.Tsallis(order))
    assert dict(criterion.named_parameters()) == {"regularizer.alpha": order}


@every_owner
def test_the_modes_of_a_model_reach_its_estimator(own):
    owner = own(pb.reinforce(2, "running_average"))
    assert not owner.eval().estimator.baseline.training
    assert owner.train().estimator.baseline.training


def test_a_value_network_is_saved_with_the_estimator_and_gets_no_gradient_from_it():
    value = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    owner = holder(pb.reinforce(2, baseline=value))
    assert "estimator.baseline.value.0.weight" in owner.state_dict()
    owner.losses(data()).sum().backward()
    assert all(parameter.grad is None for parameter in value.parameters())
    assert owner.encoder.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("make", [pb.reinforce, pb.sum_and_sample], ids=["reinforce", "sum_and_sample"])
def test_a_temperature_of_a_stochastic_estimator_belongs_to_the_model(make):
    owner = holder(make(2, temperature=nn.Parameter(torch.tensor(1.3))))
    assert float(owner.state_dict()["estimator.temperature"]) == pytest.approx(1.3)
    owner.losses(data()).sum().backward()
    assert owner.estimator.temperature.grad is not None
