"""An estimator for scikit-learn whose gradients come from coded workers."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

import fastgc


class CodedClassifier(ClassifierMixin, BaseEstimator):
    """Softmax regression, trained by workers of which some may be slow, or die.

    Parameters
    ----------
    workers, stragglers : int
        How many processes compute, and how many of them may be missing in a step.
    rounds : int
        Gradient steps of `fit`.
    partial_rounds : int
        Gradient steps of each `partial_fit`.
    lr : float
        Learning rate of AMSGrad.
    l2 : float
        Weight of the penalty on the weights.
    engine : "local", "mpi", "ray", "torch" or "simulated"
        Where workers run.
    random_state : int, RandomState or None
        Of the delays, if there are any.

    Attributes
    ----------
    classes_ : array
    theta_ : array
        The parameters.
    history_ : fastgc.History
        Of the last `fit` or `partial_fit`.
    n_features_in_ : int
    """

    def __init__(
        self,
        *,
        workers=4,
        stragglers=1,
        rounds=150,
        partial_rounds=10,
        lr=0.03,
        l2=0.0,
        engine="local",
        random_state=None,
    ):
        self.workers = workers
        self.stragglers = stragglers
        self.rounds = rounds
        self.partial_rounds = partial_rounds
        self.lr = lr
        self.l2 = l2
        self.engine = engine
        self.random_state = random_state

    def fit(self, X, y):
        """Train from zero."""
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        self.classes_ = unique_labels(y)
        return self._train(X, y, self.rounds)

    def partial_fit(self, X, y, classes=None):
        """Take some steps more on these samples; the first call must name all classes."""
        first = not hasattr(self, "classes_")
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), reset=first)
        check_classification_targets(y)
        if first:
            if classes is None:
                raise ValueError("classes must be given to the first call of partial_fit")
            self.classes_ = unique_labels(classes)
        elif classes is not None and not np.array_equal(self.classes_, unique_labels(classes)):
            raise ValueError(f"classes are {classes} here, and were {self.classes_} before")
        start = None if first else self.theta_
        return self._train(X, y, self.partial_rounds, theta0=start)

    def predict_proba(self, X):
        """Probability of each class."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return self._model().probabilities(self.theta_, X)

    def predict(self, X):
        """The most probable class."""
        found = self.predict_proba(X).argmax(axis=1)
        return self.classes_[found]

    def _model(self):
        features, classes = self.n_features_in_, len(self.classes_)
        return fastgc.models.SoftmaxRegression(features, classes, l2=self.l2)

    def _train(self, X, y, rounds, **options):
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"y holds classes that are not among {self.classes_}")
        y = np.searchsorted(self.classes_, y)
        if len(self.classes_) == 1:
            raise ValueError("there is one class only: nothing to tell apart")
        # Of a data set some samples are for tests; here they say which classes there are.
        count = len(self.classes_)
        tests = np.zeros((count, X.shape[1]), X.dtype), np.arange(count)
        self.history_ = fastgc.train(
            fastgc.BinaryCode(self.workers, stragglers=self.stragglers),
            fastgc.data.Dataset("samples", X, y, *tests),
            model=self._model(),
            optimizer=fastgc.optimizers.AMSGrad(self.lr),
            rounds=rounds,
            evaluate_every=rounds,
            engine=self.engine,
            seed=int(check_random_state(self.random_state).randint(2**31)),
            **options,
        )
        self.theta_ = self.history_.theta
        return self


if __name__ == "__main__":
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    split = train_test_split(*load_digits(return_X_y=True), random_state=0)
    X_train, X_test, y_train, y_test = split
    model = make_pipeline(StandardScaler(), CodedClassifier(random_state=0))
    model.fit(X_train, y_train)
    print(f"{model.score(X_test, y_test):.3f} of the test set are recognised")
    print(f"with {model[-1].history_.rounds[-1].uploads} messages in the last step")
