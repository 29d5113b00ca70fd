"""Files bring back the same bits, and nothing else than what was saved."""

import json
import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro.distributions import LKJ, HalfNormal, LogNormal, TransformedDistribution
from numpyro.distributions.transforms import PowerTransform
from safetensors.numpy import load_file, save_file

import latentgp as lgp
from latentgp import InputError, persistence
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.surfaces.estimators.additive import Smooth
from latentgp.surfaces.tables.model import TableModel

_generator = np.random.default_rng(0)
X = _generator.normal(size=(20, 2))
Y = 4 + np.sin(X[:, 0]) + 0.1 * _generator.normal(size=20)
LABELS = np.where(X[:, 0] > 0, "yes", "no")
NEW = _generator.normal(size=(9, 2))

ESTIMATORS = {
    "regressor": (lgp.GPRegressor(random_state=0), Y),
    "sparse regressor": (lgp.GPRegressor(n_inducing=6, random_state=0), Y),
    "regressor with a kernel": (
        lgp.GPRegressor(lgp.Matern32(lengthscale=2.0).on(0) + 0.1, method="exact"),
        Y,
    ),
    "classifier": (lgp.GPClassifier(random_state=0), LABELS),
    "classifier of truth values": (lgp.GPClassifier(random_state=0), X[:, 0] > 0),
    "sparse classifier": (lgp.GPClassifier(n_inducing=6, random_state=0), LABELS),
}


class Bump(lgp.Stationary):
    """A user's own kernel."""

    def correlation(self, squared_distance):
        return 1 / (1 + squared_distance)


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # six inducing points are few
        return {name: estimator.fit(X, y) for name, (estimator, y) in ESTIMATORS.items()}


@pytest.fixture
def kernel_file(tmp_path):
    return lgp.save(lgp.RBF(lengthscale=[0.1, 0.2]), tmp_path / "kernel.latentgp")


FILES = Path(__file__).parents[1] / "support" / "files"
WRITTEN_BEFORE = json.loads((FILES / "answers.json").read_text())


@pytest.mark.parametrize("name", WRITTEN_BEFORE["answers"])
def test_a_file_written_before_the_modules_moved_predicts_the_same(name):
    value, new = lgp.load(FILES / f"{name}.latentgp"), np.array(WRITTEN_BEFORE["new"])
    if isinstance(value, TableModel):
        table = pd.DataFrame({"a": new[:, 0], "b": ["yes"] * len(new)})
        found = {"mean": value.predict(table)["mean"]}
    else:
        posterior = getattr(value, "posterior_", getattr(value, "posterior", value))
        found = posterior.predict_f(new)._asdict() if hasattr(posterior, "predict_f") else {}
        if isinstance(value, lgp.GPClassifier):
            found["proba"] = value.predict_proba(new)
    wanted = WRITTEN_BEFORE["answers"][name]
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-10, atol=1e-12)


def test_files_hold_public_names(tmp_path):
    for name in WRITTEN_BEFORE["answers"]:
        path = lgp.save(lgp.load(FILES / f"{name}.latentgp"), tmp_path / name)
        assert b"latentgp." in path.read_bytes()
        assert not re.search(rb"latentgp\.[a-z_.]*:", path.read_bytes())


def test_a_field_is_found_under_its_former_name():
    written = {"object": "latentgp.GibbsSampling", "fields": {"alpha": 0.5, "draws": 20}}
    method = persistence._decode(written, {})
    assert (method.power, method.draws) == (0.5, 20)
    regressor = lgp.load(FILES / "regressor.latentgp")
    assert regressor.posterior_.latent.trace_term == regressor.diagnostics_.trace_term == 0


def test_a_field_that_the_file_does_not_know_has_its_default():
    method = lgp.AugmentedVI(augmentation=lgp.GammaPoissonPolyaGamma())
    written = persistence._encode(method, {}, "method")
    written["fields"]["augmentation"]["fields"] = {}
    loaded = persistence._decode(written, {})
    assert loaded == method
    assert jax.tree.structure(loaded) == jax.tree.structure(method)


def test_columns_beside_those_on_the_globe_are_among_them():
    fields = {"beside": {"tuple": [3, 0]}, "columns": {"tuple": [1, 2]}, "kernel": "globe"}
    written = {"object": "latentgp.Smooth", "fields": fields | {"on_globe": "matern32"}}
    assert persistence._decode(written, {}) == Smooth((1, 2, 3, 0), "globe")
    alone = {"object": "latentgp.Smooth", "fields": fields | {"beside": {"tuple": []}}}
    assert persistence._decode(alone, {}) == Smooth((1, 2), "globe")


def test_a_class_is_found_under_its_former_name():
    assert persistence._resolve("latentgp.Remembered") is StreamingPrior


def answers(estimator):
    latent = estimator.posterior_.predict_f(NEW)
    draws = estimator.sample_y(NEW, 3, random_state=1)
    return [estimator.predict(NEW), latent.mean, latent.variance, draws]


def assert_same_bits(first, second):
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def doctored(path, change):
    """The same file with its JSON header changed, by one who knows about the checksum."""
    with persistence.safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["latentgp"])
    del header["digest"]
    change(header)
    tensors = load_file(path)
    header["digest"] = persistence._digest(header, tensors)
    save_file(tensors, path, metadata={"latentgp": json.dumps(header)})
    return path


class TestRoundTrip:
    @pytest.mark.parametrize("name", ESTIMATORS)
    def test_estimators_predict_the_same_bits(self, fitted, name, tmp_path):
        estimator = fitted[name]
        path = estimator.save(tmp_path / "model.latentgp")  # before it ever predicts
        loaded = lgp.load(path)
        assert_same_bits(answers(loaded), answers(estimator))
        again = estimator.save(tmp_path / "again.latentgp")
        assert_same_bits(answers(lgp.load(again)), answers(estimator))
        assert type(loaded) is type(estimator)
        assert loaded.diagnostics_.verdict == estimator.diagnostics_.verdict
        assert loaded.posterior_.log_evidence == estimator.posterior_.log_evidence
        assert_same_bits(loaded.history_, estimator.history_)
        assert loaded.method_ == estimator.method_
        params = loaded.get_params()
        assert params.keys() == estimator.get_params().keys()
        assert params["n_inducing"] == estimator.n_inducing

    def test_a_loaded_estimator_can_be_fitted_again(self, fitted, tmp_path):
        loaded = lgp.load(fitted["regressor with a kernel"].save(tmp_path / "m"))
        assert_same_bits(answers(loaded.fit(X, Y)), answers(fitted["regressor with a kernel"]))

    @pytest.mark.parametrize(
        "law",
        [
            lgp.HierarchicalDirichlet(3),
            lgp.HierarchicalDirichlet(3, latents=2, rate=1.5),
            LKJ(3, 0.5, sample_method="cvine"),
        ],
        ids=["shared weights", "weights a latent", "LKJ"],
    )
    def test_a_law_comes_back_with_its_settings(self, law, tmp_path):
        loaded, key = lgp.load(lgp.save(law, tmp_path / "law")), jax.random.key(0)
        assert jax.tree.structure(loaded) == jax.tree.structure(law)
        np.testing.assert_array_equal(loaded.sample(key), law.sample(key))

    def test_priors_come_back_and_a_callback_stays_where_it_is(self, tmp_path):
        laws = {
            "kernel.lengthscale": LogNormal(np.zeros(2), 0.5),
            "likelihood.noise_variance": TransformedDistribution(
                HalfNormal(1.0), PowerTransform(2)
            ),
        }
        settings = {"priors": laws, "frozen": ("kernel.variance",), "callback": print}
        estimator = lgp.GPRegressor(max_evaluations=5, **settings).fit(X, Y)
        with pytest.warns(UserWarning, match="TransformedDistribution, is left out of the file"):
            path = estimator.save(tmp_path / "m")
        loaded = lgp.load(path)
        prior = loaded.priors["kernel.lengthscale"]
        assert isinstance(prior, LogNormal)
        np.testing.assert_array_equal(np.broadcast_to(prior.scale, 2), np.full(2, 0.5))
        assert loaded.priors["likelihood.noise_variance"] is None
        assert (loaded.callback, loaded.frozen) == (None, ("kernel.variance",))
        assert_same_bits(answers(loaded), answers(estimator))

    def test_a_file_from_before_a_setting_has_its_default(self, fitted, tmp_path):
        path = fitted["regressor"].save(tmp_path / "m")
        doctored(path, lambda header: header["value"]["fields"].pop("priors"))
        loaded = lgp.load(path)
        assert loaded.get_params()["priors"] == "weak"
        assert_same_bits(answers(loaded), answers(fitted["regressor"]))

    def test_a_sparse_model_leaves_the_data_at_home(self, fitted, tmp_path):
        tensors = load_file(fitted["sparse regressor"].save(tmp_path / "m"))
        history = len(fitted["sparse regressor"].history_.bound)
        assert all(len(X) not in a.shape or history == len(X) for a in tensors.values())

    def test_fit_model_posterior_data_and_method(self, fitted, tmp_path):
        model = lgp.LatentGP(lgp.RBF(lengthscale=0.7), lgp.Gaussian(0.1), lgp.ConstantMean(4.0))
        data = lgp.Data(X, Y, weights=np.arange(1.0, 21.0))
        fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        for name, value in {"posterior": fit.posterior, "data": data}.items():
            loaded = lgp.load(lgp.save(value, tmp_path / name))
            # A number that Python keeps as such has no dtype of its own.
            leaves, same = (map(np.asarray, jax.tree.leaves(v)) for v in (loaded, value))
            assert_same_bits(leaves, same)
        lgp.save(fit, tmp_path / "fit")
        loaded = lgp.load(tmp_path / "fit")
        assert_same_bits(loaded.posterior.predict_f(NEW), fit.posterior.predict_f(NEW))
        method = lgp.CollapsedVI(lgp.Inducing(number=7, selection="greedy-variance"))
        assert lgp.load(lgp.save(method, tmp_path / "method")) == method
        refitted = lgp.fit(
            lgp.load(lgp.save(model, tmp_path / "model")),
            lgp.load(tmp_path / "data"),
            key=jax.random.key(0),
            learn_hyperparameters=False,
        )
        assert_same_bits(refitted.posterior.predict_f(NEW), fit.posterior.predict_f(NEW))

    def test_a_model_of_a_table(self, tmp_path):
        frame = pd.DataFrame({"a": X[:, 0], "colour": LABELS, "y": Y})
        frame.loc[3, "a"] = None
        model = TableModel.fit(frame, "y", random_state=0)
        loaded = lgp.load(lgp.save(model, tmp_path / "m"))
        pd.testing.assert_frame_equal(loaded.predict(frame), model.predict(frame), check_exact=True)
        assert loaded.notes == model.notes
        assert loaded.encoder == model.encoder

    def test_numbers_that_are_not_numbers(self, tmp_path):
        values = {"nothing": None, "nan": float("nan"), 3: (1, [2.5, "x"]), "inf": -float("inf")}
        loaded = lgp.load(lgp.save(values, tmp_path / "v"))
        assert np.isnan(loaded.pop("nan"))
        del values["nan"]
        assert loaded == values


class TestWhatCannotBeRead:
    def test_a_missing_file(self, tmp_path):
        with pytest.raises(InputError, match=r"There is no file .*nowhere; check"):
            lgp.load(tmp_path / "nowhere")

    @pytest.mark.parametrize("kept", [0, 4, 100, -1])
    def test_a_truncated_file(self, kernel_file, kept):
        kernel_file.write_bytes(kernel_file.read_bytes()[:kept])
        with pytest.raises(InputError, match="is damaged or not a file written by latentgp"):
            lgp.load(kernel_file)

    @pytest.mark.parametrize("seed", range(20))
    def test_random_bytes(self, tmp_path, seed):
        path = tmp_path / "noise"
        path.write_bytes(np.random.default_rng(seed).bytes(50 * seed))
        with pytest.raises(InputError, match="is damaged or not a file"):
            lgp.load(path)

    def test_every_damaged_byte_is_noticed(self, kernel_file):
        whole = kernel_file.read_bytes()
        for place in range(len(whole)):
            kernel_file.write_bytes(whole[:place] + b"~" + whole[place + 1 :])
            if whole[place : place + 1] == b" ":  # padding of the header
                continue
            with pytest.raises(InputError):
                lgp.load(kernel_file)

    def test_a_file_of_somebody_else(self, tmp_path):
        save_file({"weight": np.ones(3)}, tmp_path / "foreign")
        with pytest.raises(InputError, match="was not written by latentgp"):
            lgp.load(tmp_path / "foreign")

    def test_a_file_whose_numbers_mean_something_else_since(self, tmp_path):
        X = np.linspace(0.0, 1.0, 8)
        method = lgp.CollapsedVI(lgp.Inducing(features=lgp.BSplines(6)))
        model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian())
        fit = lgp.fit(
            model,
            lgp.Data(X, X),
            method=method,
            key=jax.random.key(0),
            learn_hyperparameters=False,
        )
        path = lgp.save(fit.posterior, tmp_path / "splines")
        assert lgp.load(path).predict_f([0.5]).mean == fit.posterior.predict_f([0.5]).mean
        doctored(path, lambda header: header.update(schema=1))
        with pytest.raises(InputError, match=r"earlier latentgp \(schema 1\), whose Fixed"):
            lgp.load(path)

    def test_a_newer_file(self, kernel_file):
        doctored(kernel_file, lambda header: header.update(schema=99, latentgp="9.0"))
        with pytest.raises(InputError, match=r"by latentgp 9\.0 \(schema 99\), newer.*upgrade"):
            lgp.load(kernel_file)

    @pytest.mark.parametrize(
        "change",
        [
            lambda header: header.update(schema="two"),
            lambda header: header.pop("value"),
            lambda header: header["value"].pop("fields"),
            lambda header: header["value"].update(object="latentgp.kernels.stationary:Nothing"),
            lambda header: header["value"]["fields"]["lengthscale"].update(array="77"),
            lambda header: header["value"]["fields"]["lengthscale"].update(shape=[5, 5]),
        ],
    )
    def test_a_damaged_header(self, kernel_file, change):
        doctored(kernel_file, change)
        with pytest.raises(InputError, match="damaged"):
            lgp.load(kernel_file)


class TestSafety:
    @pytest.mark.parametrize(
        "name",
        [
            "subprocess:Popen",
            "builtins:eval",
            "pathlib:PosixPath",
            "latentgp.persistence:Path",
            "latentgp.persistence:importlib",
            "latentgp.inference:fit",
            "latentgp.errors:InputError",
            "latentgpx.evil:RBF",
        ],
    )
    def test_a_doctored_file_makes_no_other_object(self, kernel_file, name):
        doctored(kernel_file, lambda header: header["value"].update(object=name))
        with pytest.raises(
            InputError,
            match=r"not part of latentgp|another version|not a class that latentgp saves",
        ):
            lgp.load(kernel_file)

    def test_nothing_is_pickled(self, fitted, tmp_path, monkeypatch):
        def refuse(*_, **__):
            raise AssertionError("pickle was used")

        for name in ("dumps", "dump", "loads", "load", "Pickler", "Unpickler"):
            monkeypatch.setattr(f"pickle.{name}", refuse)
        lgp.load(fitted["classifier"].save(tmp_path / "m"))

    def test_a_users_class_comes_back_once_it_is_registered(self, tmp_path, monkeypatch):
        monkeypatch.setattr(persistence, "_REGISTERED", {})
        path = lgp.save(Bump(lengthscale=0.3) * 2.0, tmp_path / "bump")
        with pytest.raises(InputError, match=r"a Bump of .*test_persistence.*register first"):
            lgp.load(path)
        assert persistence.register(Bump) is Bump
        loaded = lgp.load(path)
        assert isinstance(loaded.kernel, Bump)
        point = jnp.ones(2, jnp.float32)
        assert float(loaded(point, point)) == 2.0

    @pytest.mark.parametrize(
        ("value", "says"),
        [
            (lambda x: x, "is a function"),
            ({"a": [1, {2, 3}]}, r"\['a'\]\[1\] is a set"),
            (np.array([object()]), "is an array of object"),
        ],
    )
    def test_what_would_need_pickle_is_refused_by_name(self, tmp_path, value, says):
        with pytest.raises(InputError, match=says):
            lgp.save(value, tmp_path / "v")
        assert not list(tmp_path.iterdir())


def test_settings_are_numbers_of_python_and_a_generator_is_told_of(tmp_path):
    settings = {"n_inducing": np.int64(6), "random_state": np.int64(3)}
    regressor = lgp.GPRegressor(**settings).fit(X, Y)
    again = lgp.load(regressor.save(tmp_path / "regressor"))
    assert {name: getattr(again, name) for name in settings} == settings
    assert {type(getattr(again, name)) for name in settings} == {int}
    np.testing.assert_array_equal(again.fit(X, Y).predict(NEW), regressor.predict(NEW))
    regressor.random_state = np.random.RandomState(3)
    with pytest.warns(UserWarning, match="random_state, a RandomState, is left out of the file"):
        regressor.save(tmp_path / "regressor")


class TestWriting:
    def test_others_may_read_it_as_any_file(self, kernel_file):
        (kernel_file.parent / "plain").write_text("")
        plain = (kernel_file.parent / "plain").stat().st_mode
        assert kernel_file.stat().st_mode == plain
        kernel_file.chmod(0o640)
        lgp.save(lgp.RBF(), kernel_file)
        assert kernel_file.stat().st_mode & 0o777 == 0o640

    def test_a_failed_write_leaves_the_old_file(self, kernel_file, monkeypatch):
        def fail(tensors, path, metadata):
            path.write_bytes(b"half")
            raise OSError("disk full")

        monkeypatch.setattr(persistence, "save_file", fail)
        with pytest.raises(InputError, match="cannot be written: disk full"):
            lgp.save(lgp.RBF(lengthscale=9.0), kernel_file)
        assert lgp.load(kernel_file).lengthscale.tolist() == [0.1, 0.2]
        assert list(kernel_file.parent.iterdir()) == [kernel_file]

    def test_a_folder_that_does_not_exist(self, tmp_path):
        with pytest.raises(InputError, match="cannot be written"):
            lgp.save(lgp.RBF(), tmp_path / "nowhere" / "kernel")

    def test_a_folder_holds_no_model(self, tmp_path):
        with pytest.raises(InputError, match="is a folder; give the file that save"):
            lgp.load(tmp_path)

    def test_a_name_that_is_a_folder(self, tmp_path):
        (tmp_path / "folder").mkdir()
        with pytest.raises(InputError, match="cannot be written"):
            lgp.save(lgp.RBF(), tmp_path / "folder")
        assert [path.name for path in tmp_path.iterdir()] == ["folder"]
