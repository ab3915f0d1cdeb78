"""Estimators with the interface of scikit-learn."""

from mtnet.estimators.few_shot import MTNetClassifier, MTNetRegressor

__all__ = ["MTNetClassifier", "MTNetRegressor"]
