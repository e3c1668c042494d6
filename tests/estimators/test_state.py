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


def symmetric():
    rule = pb.Mirror(pb.Adaptive(rate=0.1), regularizer=pb.Unregularized())
    return pb.Surrogate(pb.Unregularized(), pb.Symmetric(rule))


ADAPTIVE = [
    pytest.param(lambda: pb.spigot(pb.Adaptive(rate=0.1)), "estimator.descent_step_size", id="spigot"),
    pytest.param(lambda: pb.ste("adaptive"), "estimator.descent_step_size", id="ste"),
    pytest.param(lambda: pb.imle("adaptive", "none"), "estimator.inner.descent_step_size", id="imle"),
    pytest.param(lambda: pb.Normalized(pb.ste("adaptive")), "estimator.inner.descent_step_size", id="normalized"),
    pytest.param(symmetric, "estimator.descent_descent_step_size", id="symmetric"),
]


@every_owner
@pytest.mark.parametrize(("make", "key"), ADAPTIVE)
def test_an_adaptive_step_is_saved_and_training_resumes_with_it(own, make, key):
    owner, resumed, untrained = own(make()), own(make()), own(make())
    train(owner, 3)
    assert {name for name in owner.state_dict() if name.startswith("estimator.")} == {f"{key}.ratio", f"{key}.changed"}
    assert owner.state_dict()[f"{key}.ratio"] != untrained.state_dict()[f"{key}.ratio"]
    file = io.BytesIO()
    torch.save(owner.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    train(owner, 3), train(resumed, 3)
    assert_close(resumed.state_dict(), owner.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("make", "key"), ADAPTIVE)
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda owner: pickle.loads(pickle.dumps(owner))], ids=["copy", "pickle"]
)
def test_an_adaptive_step_is_copied_with_the_model_and_then_learns_for_itself(make, key, copied):
    owner = holder(make())
    train(owner, 2)
    twin, before = copied(owner), copy.deepcopy(owner.state_dict())
    assert_close(twin.state_dict(), before, rtol=0, atol=0)
    train(twin, 2)
    assert_close(owner.state_dict(), before, rtol=0, atol=0)
    assert twin.state_dict()[f"{key}.ratio"] != before[f"{key}.ratio"]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's own
def test_an_adaptive_step_learns_in_a_compiled_model_as_in_an_eager_one():
    torch.compiler.reset()
    owners = holder(pb.spigot("adaptive")), holder(pb.spigot("adaptive"))
    eager, compiled = owners[0].losses, torch.compile(owners[1].losses, backend="aot_eager")
    for _ in range(2):
        eager(data()).sum().backward()
        compiled(data()).sum().backward()
    assert_close(owners[1].state_dict(), owners[0].state_dict())
    assert_close(owners[1].encoder.weight.grad, owners[0].encoder.weight.grad)
    assert owners[0].estimator.descent.step_size.ratio != 1


def test_an_adaptive_step_moves_with_the_model_and_hears_of_its_mode():
    owner = holder(pb.spigot("adaptive")).double().eval()
    step = owner.estimator.descent.step_size
    assert step.ratio.dtype == torch.float64 and not step.training
    owner.losses(data().double()).sum().backward()
    assert float(step.ratio) == 1
    assert owner.train().estimator.descent.step_size.training


def test_a_module_inside_a_descent_is_held_once_it_is_set():
    estimator = pb.spigot("adaptive")
    estimator.descent = pb.Mirror(0.1, regularizer=pb.Tsallis(nn.Parameter(torch.tensor(1.5))))
    assert set(estimator.state_dict()) == {"descent_regularizer.alpha"}


def test_parts_of_a_surrogate_that_are_set_anew_count():
    scores = torch.zeros(2, 3, requires_grad=True)

    def gradient(estimator):
        (found,) = torch.autograd.grad(estimator.loss(CHOICE, scores, loss).sum(), scores)
        return found

    estimator = pb.ste()
    once = gradient(estimator)
    estimator.scale = 3.0
    assert_close(gradient(estimator), 3 * once)
    estimator.descent = pb.Unconstrained(0.5)
    assert_close(gradient(estimator), 1.5 * once)
    estimator.prediction, estimator.decodes_from, estimator.descent = pb.Entropy(), pb.Entropy(), pb.Projected(0.1)
    assert estimator.evaluations == 1
    assert_close(gradient(estimator), gradient(pb.Surrogate(pb.Entropy(), pb.Projected(0.1), scale=3.0)))


def test_a_surrogate_is_shown_in_one_line():
    shown = (
        "Surrogate(prediction=Unregularized(), descent=Projected(step_size=0.1, steps=1, backtrack=False), start=None, "
    )
    assert repr(pb.spigot(0.1)) == shown + "decodes_from=Unregularized(), scale=1.0)"
    assert repr(pb.spigot("adaptive")).count("Adaptive") == 1 and "\n" not in repr(pb.spigot("adaptive"))
    assert repr(pb.Perturbed(pb.ste())).count("Surrogate") == 1


def test_a_surrogate_may_be_called_as_other_modules_are_with_their_hooks():
    estimator, seen = pb.ste(), []
    estimator.register_forward_hook(lambda module, given, point: seen.append(point))
    point = estimator(CHOICE, torch.tensor([[1.0, 0.0, 2.0]], requires_grad=True))
    assert seen[0] is point and point.tolist() == [[0, 0, 1]]


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
